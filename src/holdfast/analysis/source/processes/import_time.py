"""What starts processes while a file is being imported: at its top level, with no main guard."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.processes.children import LOADERS, SPAWNERS, Processes, processes
from holdfast.analysis.source.processes.start_method import METHODS, MODULES
from holdfast.analysis.source.program import Call, Function, Program, constant, dotted
from holdfast.analysis.source.python.flow import method_of, reached
from holdfast.analysis.source.python.name_values import names


class ImportTimeStart(NamedTuple):
    """A line at the top level that leads to new processes."""

    entry: ast.AST
    starter: ast.AST
    """the call that makes them; entry itself, or deeper in a function"""
    what: str
    method: str


def import_time_starts(program: Program, *, complete: bool) -> list[ImportTimeStart]:
    """One for each line at the top level, in order; an excerpt must show what its children run."""
    children = processes(program)
    if children is None:
        return []
    found: dict[ast.AST, ImportTimeStart] = {}
    for starter, what, method in _starters(children):
        if not complete and not any(start.call.node is starter for start in children.starts):
            continue
        for entry in _entries(program, starter):
            said = what if entry is starter else f"`{ast.unparse(entry)}` (it leads to {what})"
            found.setdefault(entry, ImportTimeStart(entry, starter, said, method))
    return sorted(found.values(), key=lambda birth: getattr(birth.entry, "lineno", 0))


def _starters(children: Processes) -> Iterator[tuple[ast.AST, str, str]]:
    program = children.program
    workers = children.worker_classes()
    for call in program.calls:
        if call.name in SPAWNERS:
            said = constant(call.keyword("start_method"))
            method = said if isinstance(said, str) else "spawn"
            if call.keyword("start_method") is None or method in METHODS:
                yield call.node, f"{call.written}()", method
        elif call.name in LOADERS:
            if (iterated := _iterated(children, call)) is not None:
                yield iterated
        elif (made := children.made(call.node)) is not None:
            if made.kind in ("Pool", "Manager"):
                yield call.node, f"{call.written or made.kind}()", made.method
            elif made.kind in ("Process", "ProcessPoolExecutor"):
                yield from _used(program, call, made.kind, made.method)
        elif call.written in workers:
            yield from _used(program, call, "Process", workers[call.written][1])


def _used(
    program: Program, call: Call, kind: str, method: str
) -> Iterator[tuple[ast.AST, str, str]]:
    """Making a Process starts nothing yet; its `start()` in the same scope does."""
    words = ("start",) if kind == "Process" else ("submit", "map")
    known = _known_as(program, call)
    scope = program.function_of(call.node)
    for other in program.calls:
        receiver = getattr(other.node.func, "value", None)
        if method_of(other) not in words or program.function_of(other.node) is not scope:
            continue
        if receiver is call.node or (receiver is not None and dotted(receiver) in known):
            yield other.node, f"{other.written or method_of(other)}()", method
            return


def _known_as(program: Program, call: Call) -> set[str]:
    """The names it goes by: `p = Process(…)`, `ps.append(p)`, `for p in ps`."""
    found: set[str] = set()
    for above in program.above(call.node):
        if isinstance(above, ast.Assign):
            found |= {dotted(target) for target in above.targets}
        elif isinstance(above, ast.withitem) and above.optional_vars is not None:
            found.add(dotted(above.optional_vars))
        elif isinstance(above, ast.Call) and dotted(above.func).endswith(".append"):
            found.add(dotted(above.func)[: -len(".append")])
        if isinstance(above, ast.stmt):
            break
    for other in program.calls:
        if other.method == "append" and any(dotted(a) in found for a in other.node.args):
            found.add(other.written[: -len(".append")])
    return (found | _taken_from(program, found)) - {""}


def _taken_from(program: Program, lists: set[str]) -> set[str]:
    """The variables of loops over them."""
    found: set[str] = set()
    for node in program.parents:
        if isinstance(node, ast.For | ast.comprehension):
            over = {dotted(n) for n in ast.walk(node.iter) if isinstance(n, ast.Name)}
            if over & lists:
                found |= {dotted(n) for n in ast.walk(node.target)}
    return found


def _iterated(children: Processes, loader: Call) -> tuple[ast.AST, str, str] | None:
    """A loader with workers starts them when it is iterated."""
    program = children.program
    workers = constant(names(program).follow(loader.keyword("num_workers") or loader.node))
    if not isinstance(workers, int) or workers < 1:
        return None
    given = loader.keyword("multiprocessing_context")
    word = constant(given) if given is not None else children.method
    method = word if isinstance(word, str) else children.context(given) if given else ""
    target = program.parents.get(loader.node)
    bound = {n.id for n in getattr(target, "targets", []) if isinstance(n, ast.Name)}
    scope = program.function_of(loader.node)
    for loop in program.loops:
        over = loop.iter if isinstance(loop, ast.For) else None
        if over is not None and program.function_of(loop) is scope:
            read = {n.id for n in ast.walk(over) if isinstance(n, ast.Name)}
            if read & bound:
                what = f"iterating a DataLoader with {workers} workers"
                return over, what, method or "unknown"
    return None


def _entries(program: Program, starter: ast.AST) -> list[ast.AST]:
    """The lines at the top level that come to it."""
    function = program.function_of(starter)
    if function is None:
        return [starter] if at_top_level(program, starter) else []
    return [
        call.node
        for call in program.calls
        if program.function_of(call.node) is None
        and at_top_level(program, call.node)
        and _leads_to(program, call, function)
    ]


def _leads_to(program: Program, call: Call, function: Function) -> bool:
    target = program.target(call)
    return target is not None and function in reached(program, target)


def at_top_level(program: Program, node: ast.AST) -> bool:
    """It runs on import: no function around it, and no condition that may keep it from it."""
    return not any(
        isinstance(above, Function | ast.Lambda | ast.If | ast.IfExp | ast.ClassDef)
        for above in program.above(node)
    )


def second_choice(program: Program) -> list[Call]:
    """`set_start_method('spawn')` at the top level of a script that starts processes by it."""
    children = processes(program)
    if children is None or children.method not in ("spawn", "forkserver"):
        return []
    if not any(start.method in ("spawn", "forkserver") for start in children.starts):
        return []
    return [
        call
        for call in program.called(*(f"{module}.set_start_method" for module in MODULES[:2]))
        if program.function_of(call.node) is None
        and at_top_level(program, call.node)
        and call.argument(1, "force") is None
        and not any(isinstance(above, ast.Try) for above in program.above(call.node))
    ]
