"""Processes share memory, and nothing keeps them apart.

What you see   A count that is a few per cent too low, different at every run; no error, no warning.
               With spawn: `TypeError: cannot pickle '_thread.lock' object`.
Why            A lock of `threading` lives in one process: each forked child has a copy that only it
               ever takes. And `t[0] += 1` reads, adds and writes: two processes that do it at the
               same moment lose one of the two. Measured with 160,000 increments by several
               processes: 35,513 survived under threading.Lock, all of them under
               multiprocessing.Lock; without any lock 2 to 6 of 100 are lost.
How to be sure Count what should come out, and compare; more processes lose more.
Fix            One `lock = multiprocessing.Lock()` made by the parent, handed to every child in
               `args=`, and held around each change: `with lock: t[0] += 1`. Or let each child write
               to a place of its own (`t[rank]`) and add up in the parent.
Sources        https://docs.python.org/3/library/multiprocessing.html#synchronization-between-processes
               https://docs.python.org/3/library/multiprocessing.html#multiprocessing.Value
               https://docs.pytorch.org/docs/stable/notes/multiprocessing.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holdfast.analysis.source.processes.children import Processes, ProcessStart, pickled, processes
from holdfast.analysis.source.processes.shared_values import (
    InheritedValue,
    ValueKind,
    inherited_value,
    uses,
    written,
)
from holdfast.analysis.source.processes.writes import Write
from holdfast.analysis.source.program import Program, cited
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(code="HOLD620", slug="thread-lock-across-processes")

THREADS = (
    "threading.Thread",
    "threading.Timer",
    "concurrent.futures.ThreadPoolExecutor",
    "multiprocessing.pool.ThreadPool",
)


@FAULT.lint_python
def a_lock_of_one_process(program: Program, source: Source) -> Iterator[Finding]:
    """A lock, semaphore or event of `threading` is used between processes."""
    children = processes(program)
    if children is None or _has_threads(children.program):
        return  # the lock may be for the threads of one process
    told: set[ast.expr] = set()
    for start in children.starts:
        for found in _thread_locks(children, start):
            made = found.values[0]
            if made.node not in told:
                told.add(made.node)
                yield _lock(source, children, found)


def _has_threads(program: Program) -> bool:
    bases = [program.name_of(base) for one in program.classes for base in one.bases]
    return bool(program.called(*THREADS)) or any(base in THREADS for base in bases)


def _thread_locks(children: Processes, start: ProcessStart) -> Iterator[InheritedValue]:
    names = {
        *start.given,
        *(name for one in ast.walk(start.function) if (name := _dotted_use(one))),
    }
    for name in sorted(names):
        found = inherited_value(children, start, name)
        if found is None or any(value.what is not ValueKind.THREADS for value in found.values):
            continue
        if found.values[0].kind == "Event" and not found.passed and _own_affair(children, found):
            continue
        if uses(children.program, start, name) or name in start.given:
            yield found


def _own_affair(children: Processes, found: InheritedValue) -> bool:
    """Nobody but the child sets this event: it itself does, or its handler of a signal."""
    program = children.program
    outside = [
        call
        for call in program.calls
        if call.written in (f"{found.parent}.set", f"{found.parent}.clear")
        and program.function_of(call.node) not in children.bodies
    ]
    return not outside or bool(program.called("signal.signal"))


def _dotted_use(node: ast.AST) -> str:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"self.{node.attr}" if node.value.id == "self" else ""
    return ""


def _lock(source: Source, children: Processes, found: InheritedValue) -> Finding:
    made, start = found.values[0], found.start
    name, program = found.parent or found.name, children.program
    used = [start.call.node, *uses(program, start, found.name)[:1]]
    guards = [w for w, h in written(children, start) if found.name in w.guards and _shared(h)]
    way = "through the pool's initializer=" if start.kind == "Pool" else "in args="
    say, summary, reason = FAULT.error, f"`{name}` is a threading.{made.kind}", ""
    within = (
        f", which works within one process, but {start.function.name}() runs in child processes"
    )
    if found.passed and pickled(start, source.here.python):
        to = "a pool" if start.kind == "Pool" else f"processes started by {start.method}"
        summary += f" and is handed to {to}: this raises TypeError"
        reason = "it holds a lock of this process, which cannot be pickled"
    elif made.kind == "Event":
        summary += within
        reason = "each child has a copy of its own: set in one process, it is not seen in another"
    elif guards:
        used += [guards[0].node]
        summary += within
        reason = (
            "each child takes a copy of its own, so it guards nothing: updates of what they share "
            "are lost, and no error is shown"
        )
    else:
        say = FAULT.warning
        summary += within
        reason = "each child takes a copy of its own: it keeps no two of them apart"
    return say(
        summary,
        reason=reason,
        fix=f"`{name} = multiprocessing.{made.kind}()`, made by the parent and handed to the "
        f"children {way}",
        evidence=[cited(node, source.file) for node in used],
        at=program.place(made.node),
    )


@FAULT.lint_python
def they_write_at_once(program: Program, source: Source) -> Iterator[Finding]:
    """Several processes change the same place of a shared tensor, with no lock around it."""
    children = processes(program)
    if children is None:
        return
    told: set[ast.AST] = set()
    for start in children.starts:
        for write, found in written(children, start):
            if write.node in told or not _race(source, children, write, found):
                continue
            told.add(write.node)
            yield _unguarded(source, children, write, found)


def _race(source: Source, children: Processes, write: Write, found: InheritedValue) -> bool:
    several = found.start.several or _started_twice(children, found.start)
    if not several or write.guards or not write.reads_first:
        return False
    if not (_shared(found) or _shared_by_spawn(source, found)):
        return False
    if write.how == "value":
        return found.values[0].kind == "Value"
    whole = write.part is None or isinstance(write.part, ast.Constant | ast.Slice)
    return whole and found.values[0].what is ValueKind.TENSOR


def _started_twice(children: Processes, start: ProcessStart) -> bool:
    return sum(other.function is start.function for other in children.starts) > 1


def _shared(found: InheritedValue) -> bool:
    return all(value.shared for value in found.values)


def _shared_by_spawn(source: Source, found: InheritedValue) -> bool:
    """torch moves a tensor that is handed to a spawned process into shared memory."""
    tensors = all(value.what is ValueKind.TENSOR for value in found.values)
    return tensors and found.passed and pickled(found.start, source.here.python)


def _unguarded(source: Source, children: Processes, write: Write, found: InheritedValue) -> Finding:
    value = write.how == "value"
    name = found.parent or found.name
    what = f"`{ast.unparse(write.node)}`"
    lock = f"with {found.name}.get_lock():" if value else "with lock:"
    return FAULT.warning(
        f"{what} by several processes at once, with no lock: some updates of `{name}` are lost",
        reason="it reads, changes and writes back; a process that does so in between is "
        "overwritten. This is a data race: no error will be shown",
        fix=f"`{lock} {ast.unparse(write.node)}`"
        + ("" if value else ", with one multiprocessing.Lock() handed to all of them")
        + "; or give each process a place of its own and add up at the end",
        evidence=[cited(found.start.call.node, source.file)],
        at=children.program.place(write.node),
    )
