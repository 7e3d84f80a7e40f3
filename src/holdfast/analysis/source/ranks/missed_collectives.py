"""Where the ranks of a script part ways, and which collective some of them then miss.

    if rank == 0:            only rank 0 comes to the barrier
        dist.barrier()

    if rank != 0:            the others have left before the barrier
        return
    dist.barrier()

Each side of a condition is compared with the other and with what follows. A collective that the
other side has too, in whatever order or number, is taken to be meant; so is one that an unknown
call on the other side may hold, and a pair of them under two conditions of the same function.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.analysis.source.collectives.torch_calls import NEW_GROUPS
from holdfast.analysis.source.program import Call, Function, Program, dotted, once_per_program
from holdfast.analysis.source.python.name_values import names
from holdfast.analysis.source.ranks.branches import RankSplit
from holdfast.analysis.source.ranks.guards import RankGuard, rank_guards
from holdfast.analysis.source.ranks.paths import CollectiveOnPath, Paths, paths_of
from holdfast.analysis.source.ranks.rank_dependence import rank_questions
from holdfast.analysis.source.ranks.rank_names import RankScope

LONELY = re.compile(
    r"(rank_?(zero|0)|(local_)?main(_process|_rank)?|master(_process|_rank)?|primary)_only"
    r"|(run_|only_)*on_((local_)?main_process|rank_?(zero|0)|master\w*|main\w*)|rank_?(zero|0)"
)
"""decorators that run a function on one rank only"""
EXPECTED = re.compile(r"assertRaises\w*|raises|assertWarns\w*|suppress")


class MissedCollective(NamedTuple):
    """A collective that some ranks of its group do not call."""

    stop: CollectiveOnPath
    split: RankSplit
    """who comes, or who leaves where `left`"""
    at: ast.AST
    """the call that only some make, or the statement with which some leave"""
    sure: bool
    left: bool = False

    @property
    def word(self) -> str:
        """How they leave: 'return', 'continue', 'sys.exit'."""
        if isinstance(self.at, ast.Expr) and isinstance(self.at.value, ast.Call):
            return ast.unparse(self.at.value.func)
        return type(self.at).__name__.lower()


class MissedCollectiveFinder:
    """The walk over one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.paths: Paths = paths_of(program)
        self.sites = [
            (call, stops, list(rank_guards(program, call.node)))
            for call in program.calls
            if (stops := self.paths.through(call))
        ]

    def missed(self) -> Iterator[MissedCollective]:
        for call, stops, around in self.sites:
            if not self._expected(call.node):
                yield from self._alone(call, stops, around)
        yield from self._decorated()
        yield from self._left()

    # --- a collective inside a condition ----------------------------------------------------------

    def _alone(
        self, call: Call, stops: Sequence[CollectiveOnPath], around: list[RankGuard]
    ) -> Iterator[MissedCollective]:
        for guard in around:
            other = self.paths.on_path(*guard.other, nested=True)
            if self.paths.leaves(guard.arm) and not self.paths.leaves(guard.other):
                other += self.paths.after(guard.node)
            if self.paths.may_hold_collective(*guard.other):
                return
            for stop in stops:
                status = _sure(stop, guard.split)
                met = any(self._same(stop, another) for another in other)
                if status is None or met or self._paired(stop, guard):
                    continue
                if stop.collective.group and self._asks_for(stop.collective.group, call.node):
                    continue
                yield MissedCollective(stop, guard.split, call.node, status)
                return

    def _paired(self, stop: CollectiveOnPath, guard: RankGuard) -> bool:
        """`if rank != 0: barrier()` … `if rank == 0: barrier()` in one function."""
        here = self.program.function_of(guard.node)
        return any(
            self._same(stop, found) and other.split.may_complete(guard.split)
            for call, stops, around in self.sites
            for other in around[:1]
            if other.node is not guard.node and self.program.function_of(other.node) is here
            for found in stops
        )

    def _same(self, one: CollectiveOnPath, other: CollectiveOnPath) -> bool:
        """Both sides may meet there. Two groups with other members do not: ranks that make
        one each take them for the same, by their number, and mix."""
        if one.collective.key != other.collective.key:
            return False
        if one.collective.name != "new_group":
            return True
        first, second = (stop.collective.call.argument(0, "ranks") for stop in (one, other))
        if first is None or second is None:
            return True
        follow = names(self.program).follow
        return ast.unparse(follow(first)) == ast.unparse(follow(second))

    def _asks_for(self, group: str, node: ast.AST) -> bool:
        """`if group is not None:` is how members of a group are told from others."""
        tests = [a.test for a in self.program.above(node) if isinstance(a, ast.If | ast.IfExp)]
        return any(
            group in ast.unparse(test) and rank_questions(self.program).split(test) is None
            for test in tests
        )

    def _expected(self, node: ast.AST) -> bool:
        """A test that wants it to fail."""
        known = names(self.program)
        contexts = [
            value
            for above in self.program.above(node)
            if isinstance(above, ast.With | ast.AsyncWith)
            for item in above.items
            for written in [item.context_expr]
            for value in (written, *known.values(dotted(written), written))
        ]
        return any(
            isinstance(one, ast.Call) and EXPECTED.fullmatch(dotted(one.func).rpartition(".")[2])
            for one in contexts
        )

    # --- a function that runs on one rank ---------------------------------------------------------

    def _decorated(self) -> Iterator[MissedCollective]:
        for function in self.program.functions:
            for decorator in function.decorator_list:
                written = ast.unparse(decorator)
                if LONELY.fullmatch(written.partition("(")[0].rpartition(".")[2]):
                    split = RankSplit(RankScope.JOB, True, f"@{written}", one=True)
                    yield from self._inside(function, split)

    def _inside(self, function: Function, split: RankSplit) -> Iterator[MissedCollective]:
        for call, stops, around in self.sites:
            if self.program.function_of(call.node) is function and not around:
                for stop in stops[:1]:
                    status = _sure(stop, split)
                    if status is not None:
                        yield MissedCollective(stop, split, call.node, status)

    # --- leaving before a collective --------------------------------------------------------------

    def _left(self) -> Iterator[MissedCollective]:
        for guard in self._conditions():
            if self.paths.may_hold_collective(*guard.arm) or any(self._ways_out(guard.other)):
                continue  # where both sides may leave they may well do it together
            own = {stop.collective.key for stop in self.paths.on_path(*guard.arm, nested=True)}
            for leave, always in self._ways_out(guard.arm):
                rest = self.paths.after(guard.node, leave)
                missed = next((s for s in rest if s.sure and self._misses(s, own, guard)), None)
                if missed:
                    sure = always and not guard.split.mixed and bool(_sure(missed, guard.split))
                    yield MissedCollective(missed, guard.split, leave, sure, left=True)

    def _ways_out(self, block: Sequence[ast.AST]) -> Iterator[tuple[ast.stmt, bool]]:
        """Not by an exception: that ends the process with an error, which launchers see."""
        for leave, always in self.paths.exits(block):
            if not isinstance(leave, ast.Raise):
                yield leave, always

    def _misses(self, stop: CollectiveOnPath, own: set[tuple[str, str]], guard: RankGuard) -> bool:
        if stop.collective.key in own or _sure(stop, guard.split) is None:
            return False
        plain = not stop.collective.group or stop.collective.group == guard.split.group
        return plain and not list(rank_guards(self.program, stop.at.node, until=guard.node))

    def _conditions(self) -> Iterator[RankGuard]:
        questions = rank_questions(self.program)
        for node in self.program.ifs:
            if (split := questions.split(node.test)) is not None:
                yield RankGuard(split, node, node.body, node.orelse)
                if node.orelse:
                    yield RankGuard(split.inverted(), node, node.orelse, node.body)


def _sure(stop: CollectiveOnPath, split: RankSplit) -> bool | None:
    """True: surely missed by some; False: most likely; None: nothing can be said."""
    collective = stop.collective
    if collective.group == "?":
        return None
    if collective.name in NEW_GROUPS and split.members:
        return stop.sure
    if stop.deep and not split.sure:
        return None
    plain = split.sure and stop.sure
    if collective.group and collective.group == split.group:
        return plain
    if collective.group:
        # Leaders, islands and stages have their own groups; one rank alone has none.
        return False if split.scope is RankScope.JOB and split.zero and plain else None
    return plain and split.scope in (RankScope.JOB, RankScope.MACHINE)


@once_per_program
def missed_collectives(program: Program) -> list[MissedCollective]:
    """Every collective that some ranks miss, in order of the text; none for most scripts."""
    if not paths_of(program).collectives:
        return []
    found: dict[ast.AST, MissedCollective] = {}
    for one in MissedCollectiveFinder(program).missed():
        found.setdefault(one.at, one)
    return sorted(found.values(), key=lambda one: (one.at.lineno, one.at.col_offset))  # type: ignore[attr-defined]
