"""Child processes do not see the module state that their parent has.

What you see   Children that wait forever on a queue that stays empty, a counter in the parent that
               stays 0, a lock that excludes no process, options that are None again, or `NameError`
               in the child. The same file worked with an older Python.
Why            A child started by spawn or forkserver is a fresh interpreter that imports the file
               again: every line at its top level runs once more and creates *another* tensor, queue
               or lock, in this child only. What is under `if __name__ == "__main__":`, or in a
               function that only the parent calls (`global ARGS; ARGS = …`), does not run there:
               the name does not exist, or has its first value. Only forked children inherit the
               parent's objects. Python 3.14 changed Linux's default from fork to forkserver, so a
               script that does not set the start method changes its meaning.
How to be sure `python -c "import multiprocessing as m; print(m.get_start_method())"`, and print
               `id()` or `data_ptr()` of the object in parent and child.
Fix            Create it in the parent and pass it: `Process(target=work, args=(queue,))`, or with
               the `initializer=` of a Pool. If you want fork, request it:
               `ctx = multiprocessing.get_context("fork")`.
Known limits   Only names of the same file are followed: state of an imported module behaves the
               same way and is not reported.
Sources        https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods
               https://docs.python.org/3/whatsnew/3.14.html (multiprocessing: forkserver by default)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holdfast.analysis.source.processes.children import Processes, ProcessStart, processes
from holdfast.analysis.source.processes.set_by_parent import StaleVariable, stale_variables
from holdfast.analysis.source.processes.shared_values import (
    InheritedValue,
    ValueKind,
    inherited_value,
    uses,
)
from holdfast.analysis.source.processes.start_method import spawns
from holdfast.analysis.source.program import Program, cited
from holdfast.analysis.source.python.flow import under_main_guard
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD621",
    slug="module-state-under-spawn",
    related=("unshared-tensor", "thread-lock-across-processes", "missing-main-guard", "fork-cuda"),
)


@FAULT.lint_python
def child_creates_its_own_object(program: Program, source: Source) -> Iterator[Finding]:
    children = processes(program)
    if children is None:
        return
    told: set[ast.expr] = set()
    for start in children.starts:
        if start.method in ("fork", "unknown"):
            continue
        for found in _reached(children, start):
            made = found.values[0]
            if made.node not in told:
                told.add(made.node)
                yield _finding(source, children, found)


def _reached(children: Processes, start: ProcessStart) -> Iterator[InheritedValue]:
    """Shared objects of the module that the child's function uses but is not passed."""
    program = children.program
    read = {
        node.id
        for node in ast.walk(start.function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    for name in sorted(read - start.given.keys() - set(_set_in_functions(children))):
        found = inherited_value(children, start, name)
        if found is None or children.names.home(name, start.function) is not None:
            continue
        kinds = {value.what for value in found.values}
        shared = all(value.shared for value in found.values)
        module = all(program.function_of(value.node) is None for value in found.values)
        if shared and module and kinds <= {ValueKind.TENSOR, ValueKind.MODULE, ValueKind.PROCESSES}:
            yield found


def _set_in_functions(children: Processes) -> Iterator[str]:
    """`global queue` and `queue = …` in a function: a Pool's initializer passes it that way."""
    for function in children.program.functions:
        nodes = list(ast.walk(function))
        told = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
        for node in nodes:
            if isinstance(node, ast.Assign):
                yield from (t.id for t in node.targets if isinstance(t, ast.Name) and t.id in told)


def _finding(source: Source, children: Processes, found: InheritedValue) -> Finding:
    program, made, start = children.program, found.values[0], found.start
    work, name = start.function.name, found.name
    what = "shared tensor" if made.what is ValueKind.TENSOR else made.kind.rpartition(".")[2]
    hidden = under_main_guard(program, made.node)
    used = uses(program, start, name)[:1]
    evidence = [cited(start.call.node, source.file), *(cited(one, source.file) for one in used)]
    fresh = (
        "the child imports this file again and does not find the name (it is under the main "
        "guard): NameError"
        if hidden
        else f"the child imports this file again and creates its own {what}; the parent's is never "
        "touched, and there is no error"
    )
    fix = f"pass it: `{_pass_it(start, name)}`"
    if spawns(start.method, source.here.python):
        how = "forkserver, the default" if start.method == "default" else start.method
        return FAULT.error(
            f"{work}() uses the module's `{name}`, but its process is started by {how}",
            reason=fresh,
            fix=fix,
            evidence=evidence,
            at=program.place(made.node),
        )
    return FAULT.warning(
        f"{work}() uses the module's `{name}` in a child process: that works only where children "
        "are forked",
        reason="the start method is not set: fork on Linux before Python 3.14, forkserver since, "
        f"spawn on macOS and Windows. With the latter two {fresh}",
        fix=f"{fix}, or request fork: `multiprocessing.get_context('fork')`",
        evidence=evidence,
        at=program.place(made.node),
    )


def _pass_it(start: ProcessStart, name: str) -> str:
    work = start.function.name
    if start.kind == "mp.spawn":
        return f"mp.spawn({work}, args=(…, {name}), …)"
    if start.kind in ("Pool", "initializer"):
        return f"Pool(initializer=…, initargs=({name},))"
    if start.kind == "subclass":
        return f"self.{name} = {name} in __init__"
    return f"Process(target={work}, args=(…, {name}))"


# --- a variable of the module that the parent sets -----------------------------------------------


@FAULT.lint_python
def variable_is_set_in_the_parent_only(program: Program, source: Source) -> Iterator[Finding]:
    children = processes(program)
    for one in stale_variables(children) if children else ():
        if children and one.name not in {found.name for found in _reached(children, one.start)}:
            yield _not_seen(source, children, one)


def _not_seen(source: Source, children: Processes, one: StaleVariable) -> Finding:
    start, line = one.start, one.assign.lineno
    sure = spawns(start.method, source.here.python)
    how = "by default forkserver" if start.method == "default" else start.method
    there = (
        "the name does not exist there: NameError"
        if one.missing
        else f"`{one.name}` has the module's first value there"
    )
    return (FAULT.error if sure else FAULT.warning)(
        f"{start.function.name}() reads `{one.written}` in a child process, which does not see "
        f"what line {line} set it to" + ("" if sure else ", unless it is forked"),
        reason=(
            f"a child started by {how} imports this file again, and does not run line {line}; "
            if sure
            else "the start method is not set: forkserver (since Python 3.14) and spawn (on macOS "
            f"and Windows) import this file again and do not run line {line}; "
        )
        + there,
        fix=f"pass it: `{_pass_it(start, one.name)}`",
        evidence=[cited(one.assign, source.file), cited(start.call.node, source.file)],
        at=children.program.place(one.read),
    )
