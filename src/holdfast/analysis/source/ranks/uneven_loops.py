"""Loops whose length follows the rank, with something inside that all ranks must do equally often.

for file in files[rank::world_size]:      one more on the first ranks, unless it divides
for item in [x for i, x in enumerate(items) if i % world_size == rank]:      the same
for _ in range(rank):                     differs for certain, and so does range(20 + rank)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.program import Call, Program, dotted
from holdfast.analysis.source.python.name_values import names
from holdfast.analysis.source.ranks.guards import rank_guards
from holdfast.analysis.source.ranks.paths import paths_of
from holdfast.analysis.source.ranks.rank_dependence import rank_questions
from holdfast.analysis.source.ranks.rank_names import integer
from holdfast.findings import Place

WRAPPERS = frozenset(
    {
        *("enumerate", "zip", "iter", "list", "tuple", "sorted", "tqdm", "reversed"),
        *("DataLoader", "Subset"),
    }
)
"""what passes on as much as it is given"""
EVENED = re.compile(
    r"drop_last|set_epoch|DistributedSampler|//\s*[\w.]*(world|num_replicas|n_?ranks|n_?procs)"
    r"|%\s*[\w.]*world(_size)?\b(\(\))?(?!\s*[!=]=\s*[\w.]*rank)"
)
"""words of a script that takes care of it: the count divides, or is cut so that it does; not those
that deal the items out, `i % world_size == rank`"""
SPLITTERS = ("array_split", "chunk", "tensor_split")
DDP = "DistributedDataParallel"


class RankShare(NamedTuple):
    """What one rank iterates over."""

    text: str
    sure: bool


class UnevenLoop(NamedTuple):
    """A collective in a loop of uneven length."""

    what: str
    over: str
    sure: bool
    place: Place


def uneven_loops(program: Program) -> Iterator[UnevenLoop]:
    if not paths_of(program).collectives and DDP not in program.text:
        return
    for loop in program.loops:
        if not isinstance(loop, ast.For | ast.AsyncFor):
            continue
        share = _share(program, loop.iter)
        if share is None or (not share.sure and EVENED.search(program.text)):
            continue
        met = None if _joined(program, loop) else _met(program, loop)
        if met is not None and next(rank_guards(program, met.node, until=loop), None) is None:
            what = met.written or "backward"
            over = share.text if len(share.text) < 50 else f"{share.text[:49]}…"
            yield UnevenLoop(what, f"`{over}`", share.sure, program.place(met.node))


def _joined(program: Program, loop: ast.AST) -> bool:
    """`with model.join():`, `with Join([model]):` let the early ones wait."""
    return any(
        isinstance(item.context_expr, ast.Call)
        and ast.unparse(item.context_expr.func).rpartition(".")[2] in ("join", "Join")
        for above in program.above(loop)
        if isinstance(above, ast.With)
        for item in above.items
    )


def _met(program: Program, loop: ast.For | ast.AsyncFor) -> Call | None:
    """The first call of the loop at which all ranks meet; of DDP, backward."""
    for stop in paths_of(program).on_path(*loop.body):
        if not stop.collective.group and stop.sure:
            return stop.at
    if DDP not in program.text:
        return None
    for call in program.calls_in(*loop.body):
        if isinstance(call.node.func, ast.Attribute) and call.node.func.attr == "backward":
            return call
    return None


def _share(program: Program, node: ast.expr, deep: int = 5) -> RankShare | None:
    node = names(program).follow(node)
    if deep == 0:
        return None
    if isinstance(node, ast.Call):
        return _called(program, node, deep)
    if isinstance(node, ast.Subscript):
        return _sliced(program, node)
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return _dealt_out(program, node)
    return None


def _dealt_out(program: Program, node: ast.ListComp | ast.GeneratorExp) -> RankShare | None:
    """`[x for i, x in enumerate(items) if i % world_size == rank]`"""
    for test in (one for part in node.generators for one in part.ifs):
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Eq):
            sides = [test.left, test.comparators[0]]
            turns = [s for s in sides if isinstance(s, ast.BinOp) and isinstance(s.op, ast.Mod)]
            if len(turns) == 1 and any(
                rank_questions(program).number(s) for s in sides if s not in turns
            ):
                return RankShare(ast.unparse(node), sure=False)
    return None


def _called(program: Program, node: ast.Call, deep: int) -> RankShare | None:
    last = dotted(node.func).rpartition(".")[2]
    if last == "range":
        return _range(program, node)
    if last == "islice" and len(node.args) == 4:
        return _strided(program, node, node.args[1], node.args[3])
    if last in WRAPPERS:
        inner = (_share(program, one, deep - 1) for one in node.args[:2])
        return next((one for one in inner if one), None)
    return None


def _range(program: Program, node: ast.Call) -> RankShare | None:
    """`range(rank)` and `range(rank, n)` differ; `range(rank, n, world_size)` may; what else is
    computed from the rank is most likely an equal part."""
    if len(node.args) == 3:
        return _strided(program, node, node.args[0], node.args[2])
    steps = [_step(program, one) for one in node.args]
    if not steps or None in steps or steps[-1] == (steps[0] if len(steps) == 2 else 0):
        return None
    return RankShare(ast.unparse(node), sure=True)


def _step(program: Program, node: ast.expr, deep: int = 5) -> int | None:
    """By how much a number grows from a rank to the next; None when that cannot be told."""
    asked = rank_questions(program)
    made = names(program).follow(node)
    if isinstance(made, ast.BinOp) and isinstance(made.op, ast.Add | ast.Sub) and deep:
        left, right = (_step(program, one, deep - 1) for one in (made.left, made.right))
        if left is None or right is None:
            return None
        return left - right if isinstance(made.op, ast.Sub) else left + right
    if isinstance(made, ast.IfExp) and asked.split(made.test):
        either = integer(made.body), integer(made.orelse)
        return None if None in either else int(either[0] != either[1])
    if not isinstance(made, ast.BinOp) and asked.number(node):
        return 1
    parts = (one for one in ast.walk(made) if isinstance(one, ast.expr))
    return None if any(asked.number(one) for one in parts) else 0


def _strided(program: Program, node: ast.expr, start: ast.expr, step: ast.expr) -> RankShare | None:
    """From one's own rank on, in steps of some number: what else than the number of ranks?"""
    if rank_questions(program).number(start) and integer(step) is None:
        return RankShare(ast.unparse(node), sure=False)
    return None


def _sliced(program: Program, node: ast.Subscript) -> RankShare | None:
    part = node.slice
    if isinstance(part, ast.Slice):
        if part.lower is None or part.step is None or not dotted(node.value):
            return None
        return _strided(program, node, part.lower, part.step)
    made = names(program).follow(node.value)
    split = isinstance(made, ast.Call) and dotted(made.func).rpartition(".")[2] in SPLITTERS
    if split and rank_questions(program).number(part):
        return RankShare(ast.unparse(node), sure=False)
    return None
