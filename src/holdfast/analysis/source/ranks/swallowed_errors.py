"""Errors that one rank swallows, so that it misses a collective which the others call.

for batch in loader:
    try:
        loss = step(batch)         raises on one rank: out of memory, a bad file
        dist.all_reduce(loss)      that rank does not come here
    except RuntimeError:
        continue

try:
    rows = read(f"part-{rank}")    a file of this rank's own
except OSError:
    return                         and the others continue to the next collective
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holdfast.analysis.source.program import Call, Program, dotted
from holdfast.analysis.source.python.flow import in_loop
from holdfast.analysis.source.ranks.guards import rank_guards
from holdfast.analysis.source.ranks.paths import CollectiveOnPath, Paths, paths_of
from holdfast.analysis.source.ranks.rank_dependence import rank_questions
from holdfast.analysis.source.source_problem import SourceProblem

EVERYWHERE = frozenset(["ImportError", "ModuleNotFoundError", "KeyboardInterrupt", "StopIteration"])
"""kinds that all ranks raise alike, or that mean the end of the data"""
HARMLESS = frozenset(
    {
        *("print", "len", "range", "isinstance", "str", "float", "int", "append", "update"),
        *("info", "debug", "warning", "time", "perf_counter", "sleep"),
        *("get_rank", "get_world_size", "item", "to", "cuda", "tensor", "ones", "zeros"),
        *("zero_grad", "set_epoch", "train", "eval"),
    }
)
"""calls that hardly fail on one rank only"""


def problems(program: Program) -> Iterator[SourceProblem]:
    paths = paths_of(program)
    if not paths.collectives:
        return
    yield from _left_behind(program, paths)
    for node in program.tries:
        stop = _after_work(program, paths, node) if in_loop(program, node) else None
        handler = next((one for one in node.handlers if _swallows(paths, one)), None)
        if stop is None or handler is None or _met_later(paths, node):
            continue
        name = stop.at.written
        yield SourceProblem(
            "warning",
            f"a rank that fails in this `try` skips {name} (line {stop.at.node.lineno})",
            "what fails on one rank (out of memory, a bad file) does not fail on the others: they "
            f"wait in {name} until a timeout, or are matched with a later call of this rank",
            "let the error end the rank, so that the launcher restarts all of them; or catch it "
            f"around the work alone, and call {name} on every rank with a flag for the failure",
            program.place(handler),
        )


def _left_behind(program: Program, paths: Paths) -> Iterator[SourceProblem]:
    """A handler that leaves before the next collective, for work that differs by rank."""
    for node in program.tries:
        if not _of_its_own(program, paths, node) or paths.on_path(*node.body, *node.finalbody):
            continue
        for handler in node.handlers:
            leave = paths.leaves(handler.body)
            if not isinstance(leave, ast.Return | ast.Continue | ast.Break):
                continue
            if _kinds(handler) & EVERYWHERE or paths.on_path(*handler.body, nested=True):
                continue
            missed = (s for s in paths.after(node, leave) if s.sure and not s.collective.group)
            stop = next(
                (s for s in missed if not next(rank_guards(program, s.at.node), None)), None
            )
            if stop is not None and not paths.may_hold_collective(*handler.body):
                name = f"{stop.at.written} (line {stop.at.node.lineno})"
                yield SourceProblem(
                    "warning",
                    f"a rank whose work fails leaves here, before {name}",
                    "the work in this `try` differs by rank and may fail on one only: the others "
                    "wait for that rank until a timeout",
                    "let the error end the rank, so that the launcher restarts all of them; or "
                    "continue to the collective with a flag for the failure",
                    program.place(leave),
                )


def _of_its_own(program: Program, paths: Paths, node: ast.Try) -> bool:
    """What it does is made with the number of this rank: a file, a shard."""
    asked = rank_questions(program)
    return any(
        isinstance(part, ast.expr) and asked.number(part) is not None
        for call in program.calls_in(*node.body)
        if _may_fail(paths, call)
        for given in (*call.node.args, *(k.value for k in call.node.keywords))
        for part in ast.walk(given)
    )


def _kinds(handler: ast.ExceptHandler) -> set[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return {dotted(kind).rpartition(".")[2] for kind in kinds if kind is not None}


def _after_work(program: Program, paths: Paths, node: ast.Try) -> CollectiveOnPath | None:
    """A collective of all ranks, with something before it that may fail on one of them."""
    calls = [call for call in program.calls_in(*node.body) if not _nested(program, call, node)]
    for stop in paths.on_path(*node.body):
        if stop.collective.group or not stop.sure or next(rank_guards(program, stop.at.node), None):
            continue
        before = [call for call in calls if _earlier(call, stop.at) and _may_fail(paths, call)]
        return stop if before else None
    return None


def _nested(program: Program, call: Call, node: ast.Try) -> bool:
    """Inside another `try`, which may deal with it."""
    nearest = next((a for a in program.above(call.node) if isinstance(a, ast.Try)), None)
    return nearest is not node


def _earlier(call: Call, other: Call) -> bool:
    return (call.node.end_lineno or 0, call.node.end_col_offset or 0) < (
        other.node.lineno,
        other.node.col_offset,
    )


def _may_fail(paths: Paths, call: Call) -> bool:
    return not paths.through(call) and bool(call.method) and call.method not in HARMLESS


def _swallows(paths: Paths, handler: ast.ExceptHandler) -> bool:
    if (
        _kinds(handler) & EVERYWHERE
        or paths.on_path(*handler.body, nested=True)
        or paths.may_hold_collective(*handler.body)
    ):
        return False
    return not any(
        always and not isinstance(leave, ast.Continue)
        for leave, always in paths.exits(handler.body)
    )


def _met_later(paths: Paths, node: ast.Try) -> bool:
    """`finally:` holds the collective, for those that failed too."""
    return bool(paths.on_path(*node.finalbody))
