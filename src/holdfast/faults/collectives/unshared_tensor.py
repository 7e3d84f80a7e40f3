"""Child processes write to a private copy, and the parent never sees it.

What you see   A counter that stays 0, a buffer that stays empty, a model that did not learn, and
               no error anywhere: every process exits with code 0.
Why            A forked child has all memory of its parent, copied at its first write. A tensor that
               is not in shared memory is private to the child from then on. A spawned child that is
               *passed* a tensor shares it, because torch moves it to shared memory when it is
               pickled, and so do the workers of a Pool; lists, dicts and NumPy arrays are copied
               either way, and what a child reaches as a global is never shared by spawn.
How to be sure `tensor.is_shared()` in the parent, before the processes start.
Fix            `tensor.share_memory_()` (`model.share_memory()`) before the first start; for lists
               and dicts send the results back through a multiprocessing Queue, or use a Manager.
Known limits   Only values and writes in the same file are followed, and only if the parent reads
               the value afterwards.
Sources        https://docs.pytorch.org/docs/stable/notes/multiprocessing.html
               https://docs.python.org/3/library/multiprocessing.html#sharing-state-between-processes
               torch 2.13.0: torch/multiprocessing/reductions.py (reduce_tensor)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holdfast.analysis.source.processes.children import Processes, pickled, processes
from holdfast.analysis.source.processes.shared_values import (
    InheritedValue,
    ProcessValue,
    ValueKind,
    comes_back,
    read_elsewhere,
    written,
)
from holdfast.analysis.source.processes.start_method import forks, spawns
from holdfast.analysis.source.processes.writes import Write
from holdfast.analysis.source.program import Program, cited
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD619",
    slug="unshared-tensor",
    related=("module-state-under-spawn", "thread-lock-across-processes", "fork-cuda"),
)

OF_TENSORS = ("+=", "whole +=", "=", "in place", "training")
OF_ARRAYS = ("+=", "whole +=", "=")
OF_PLAIN = ("+=", "=", "method")


@FAULT.lint_python
def children_write_to_copies(program: Program, source: Source) -> Iterator[Finding]:
    children = processes(program)
    if children is None:
        return
    told: set[ast.expr] = set()
    for start in children.starts:
        for write, held in written(children, start):
            value = held.values[0]
            read = read_elsewhere(children, held)
            if read is None or value.node in told or not _lost(source, write, held):
                continue
            if comes_back(children, held):
                continue
            told.add(value.node)
            yield _finding(source, children, write, held, read)


def _lost(source: Source, write: Write, held: InheritedValue) -> bool:
    """The write stays in the child, whatever the parent expects."""
    python, method = source.here.python, held.start.method
    what = {value.what for value in held.values}
    if any(value.shared for value in held.values):
        return False  # shared but reached as a global: see module-state-under-spawn
    if what <= {ValueKind.TENSOR, ValueKind.MODULE}:
        if held.passed and pickled(held.start, python):
            return False
        return (forks(method, python) or spawns(method, python)) and write.how in OF_TENSORS
    if what == {ValueKind.ARRAY}:
        return write.how in OF_ARRAYS
    return what == {ValueKind.PLAIN} and all(_changes(value, write) for value in held.values)


def _changes(value: ProcessValue, write: Write) -> bool:
    """`l[0] += 1` on a list of shared tensors reaches the parent; on a list of numbers it does
    not."""
    if write.how != "+=" or isinstance(value.node, ast.Call):
        return write.how in OF_PLAIN
    parts = (part for part in ast.walk(value.node) if isinstance(part, ast.Call | ast.Name))
    return next(parts, None) is None


def _finding(
    source: Source, children: Processes, write: Write, held: InheritedValue, read: ast.AST
) -> Finding:
    value, name = held.values[0], held.parent or held.name
    work = held.start.function.name
    evidence = [cited(write.node, source.file), cited(read, source.file)]
    at = children.program.place(value.node)
    if value.what in (ValueKind.TENSOR, ValueKind.MODULE):
        share = "share_memory_()" if value.what is ValueKind.TENSOR else "share_memory()"
        how = _how(source, held)
        return FAULT.error(
            f"`{name}` is written by {work}() in child processes, but is not in shared memory",
            reason=f"{how}; the parent keeps reading the old value, and there is no error",
            fix=f"call `{name}.{share}` before the processes start, and pass it in args=",
            evidence=evidence,
            at=at,
        )
    thing = "NumPy array" if value.what is ValueKind.ARRAY else value.kind
    return FAULT.warning(
        f"`{name}` is a plain {thing}: what {work}() puts into it in a child process is lost",
        reason="every process has its own copy, whichever way it was started; the parent's stays "
        "unchanged, and there is no error",
        fix="send the results back through a multiprocessing.Queue, return them from Pool.map, or "
        + (
            "use a tensor after `share_memory_()`"
            if value.what is ValueKind.ARRAY
            else f"use `multiprocessing.Manager().{'list' if thing == 'list' else 'dict'}()`"
        ),
        evidence=evidence,
        at=at,
    )


def _how(source: Source, held: InheritedValue) -> str:
    if not forks(held.start.method, source.here.python):
        return (
            f"children started by {held.start.method} create their own `{held.name}` when they "
            "import this file"
        )
    if held.start.method == "fork":
        return "a forked child writes to its own copy of that memory"
    passed = "; only spawn and forkserver share a tensor that is passed" if held.passed else ""
    return f"children are forked (Linux's default before Python 3.14), each with a copy{passed}"
