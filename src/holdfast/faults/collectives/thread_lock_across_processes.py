"""Processes change shared memory without a lock that works between processes.

What you see   A count that is a few per cent too low, different in every run; no error, no warning.
               With spawn: `TypeError: cannot pickle '_thread.lock' object`.
Why            A lock of `threading` exists in one process: each forked child has its own copy that
               no other process ever takes. And `t[0] += 1` reads, adds and writes: when two
               processes do it at the same moment, one update is lost. Measured with 160,000
               increments by several processes: 35,513 survived under threading.Lock, all of them
               under multiprocessing.Lock; without any lock 2 to 6 of 100 are lost.
How to be sure Compare the result with what it should be; more processes lose more.
Fix            Create one `lock = multiprocessing.Lock()` in the parent, pass it to every child in
               `args=`, and hold it around each change: `with lock: t[0] += 1`. Or let each child
               write to its own element (`t[rank]`) and add up in the parent.
Known limits   Scripts that also start threads are not judged: the lock may be meant for them.
               Writes in functions of other files are not followed.
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

FAULT = Fault(
    code="HOLD620",
    slug="thread-lock-across-processes",
    related=("unshared-tensor", "module-state-under-spawn"),
)

THREADS = (
    "threading.Thread",
    "threading.Timer",
    "concurrent.futures.ThreadPoolExecutor",
    "multiprocessing.pool.ThreadPool",
)


@FAULT.lint_python
def thread_lock_is_used_across_processes(program: Program, source: Source) -> Iterator[Finding]:
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
        event = found.values[0].kind == "Event"
        if event and not found.passed and _set_by_the_child_only(children, found):
            continue
        if uses(children.program, start, name) or name in start.given:
            yield found


def _set_by_the_child_only(children: Processes, found: InheritedValue) -> bool:
    """Only the child sets this event: its own code, or its signal handler."""
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
    guarded = [w for w, h in written(children, start) if found.name in w.guards and _shared(h)]
    way = "through the pool's initializer=" if start.kind == "Pool" else "in args="
    raises = found.passed and pickled(start, source.here.python)
    if raises:
        to = "a pool" if start.kind == "Pool" else f"processes started by {start.method}"
        what = f" and is passed to {to}: this raises TypeError"
    else:
        work = start.function.name
        what = f", which works within one process, but {work}() runs in child processes"
    if guarded and not raises and made.kind != "Event":
        used = [*used, guarded[0].node]
    certain = raises or made.kind == "Event" or bool(guarded)
    report = FAULT.error if certain else FAULT.warning
    return report(
        f"`{name}` is a threading.{made.kind}{what}",
        reason=_effect(made.kind, raises=raises, guards=bool(guarded)),
        fix=f"use `{name} = multiprocessing.{made.kind}()`, created in the parent and passed to "
        f"the children {way}",
        evidence=[cited(node, source.file) for node in used],
        at=program.place(made.node),
    )


def _effect(kind: str, *, raises: bool, guards: bool) -> str:
    if raises:
        return "it holds a lock of this process, which cannot be pickled"
    if kind == "Event":
        return "each child has its own copy: setting it in one process has no effect in another"
    if guards:
        return (
            "each child takes its own copy, so it protects nothing: updates of shared memory are "
            "lost without an error"
        )
    return "each child takes its own copy, so it excludes no other process"


@FAULT.lint_python
def shared_memory_is_changed_without_a_lock(program: Program, source: Source) -> Iterator[Finding]:
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
        f"several processes run {what} without a lock: some updates of `{name}` are lost",
        reason="it reads, changes and writes back; an update by another process in between is "
        "overwritten. This is a data race: there will be no error",
        fix=f"`{lock} {ast.unparse(write.node)}`"
        + ("" if value else ", with one multiprocessing.Lock() passed to all of them")
        + "; or give each process its own element and add up at the end",
        evidence=[cited(found.start.call.node, source.file)],
        at=children.program.place(write.node),
    )
