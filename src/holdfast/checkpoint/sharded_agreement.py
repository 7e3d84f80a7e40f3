"""All ranks agree on who writes what, once, and again when what a rank holds has changed.

    rank N: sharded/TOKEN/from/N     a digest of what it holds           ->  rank 0
    rank 0: sharded/TOKEN/to/N       as before; describe it; or: who holds its tensors
    rank N: sharded/TOKEN/details/N  what it holds, if it was asked to    ->  rank 0
    rank 0: sharded/TOKEN/told/N     the answer to that

Of ranks that hold the same one is asked, so little goes through the store, however many there are.
Not through a process group: a wait here is named on the rank's page, nothing is pickled, and the
job's own groups stay out of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TypeVar

import msgspec

from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.messages import PATIENCE
from holdfast.checkpoint.sharded_plan import (
    WHOLE,
    HeldState,
    PieceHolders,
    RankGroup,
    Replicas,
    Samples,
    ShardPlan,
    differ,
    is_matrix,
    merge,
    other_values,
)
from holdfast.errors import ConfigError, EnvironmentFailure, Error

T = TypeVar("T")


class _Summary(msgspec.Struct, frozen=True, kw_only=True):
    held: str = ""
    """a digest"""
    values: str = ""
    """a digest of samples of the plain tensors; '' where they are not compared"""
    plan: int = 0
    """the number of the one that this rank knows"""
    problem: str = ""


class _Details(msgspec.Struct, frozen=True, kw_only=True):
    held: HeldState
    samples: dict[str, tuple[float, ...]]


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    describe: bool = False
    holders: PieceHolders | None = None
    """None: as before"""
    plan: int = 0
    problem: str = ""
    hint: str = ""
    refused: bool = False
    """by what the job is, so that no later save can be better"""


class HeldDigest:
    """What a rank holds, with its digest. A new one is made when something has changed."""

    def __init__(self, held: HeldState) -> None:
        self.held = held
        self.digest = _digest(msgspec.json.encode(held))


class ShardAgreement:
    """One for each ShardedState: remembers the plan for as long as no rank's tensors change."""

    def __init__(self, board: MessageBoard, *, patience: float = PATIENCE) -> None:
        self._board, self._patience = board, patience
        self._compared = ""
        self._holders = PieceHolders()
        self.number = 0
        # On rank 0:
        self._digests: list[str] = []
        self._known: dict[str, HeldState] = {}
        self._group_of: list[int] = []
        self._latest = 0
        self._replicas: Replicas = set()
        self.plan: ShardPlan | None = None
        self.first_of_groups: tuple[int, ...] = ()
        """one rank of each group"""
        self.index_text = b""

    def fail(self, token: str, problem: str) -> None:
        """What this rank cannot save ends the save of all, with the same sentence."""
        self._settle(token, _Summary(problem=problem), None)

    def agree(
        self, token: str, mine: HeldDigest, samples: Callable[[], Samples] = dict
    ) -> PieceHolders:
        """Who holds this rank's tensors. All ranks call it, with the save's token."""
        is_new = mine.digest != self._compared
        values = dict(samples()) if is_new else {}
        whole = {each.name for each in mine.held.tensors if each.layout == WHOLE} & values.keys()
        plain = [(name, values[name]) for name in sorted(whole)]
        summary = _Summary(
            held=mine.digest,
            values=_digest(msgspec.json.encode(plain)) if is_new else "",
            plan=self.number,
        )
        self._settle(token, summary, _Details(held=mine.held, samples=values))
        self._compared = mine.digest
        return self._holders

    def _settle(self, token: str, mine: _Summary, details: _Details | None) -> None:
        leads = self._board.rank == 0
        answer = (self._lead if leads else self._follow)(token, mine, details)
        if answer.problem:
            self._compared, self.number = "", 0
            kind = ConfigError if answer.refused else EnvironmentFailure
            raise kind(answer.problem, hint=answer.hint)
        if answer.holders is not None:
            self._holders, self.number = answer.holders, answer.plan

    def _follow(self, token: str, mine: _Summary, details: _Details | None) -> _Answer:
        rank = self._board.rank
        self._board.post(f"sharded/{token}/from/{rank}", mine)
        answer = self._answer_for(f"sharded/{token}/to/{rank}")
        if answer.describe:
            assert details is not None
            self._board.post(f"sharded/{token}/details/{rank}", details)
            answer = self._answer_for(f"sharded/{token}/told/{rank}")
        return answer

    def _answer_for(self, name: str) -> _Answer:
        # Twice: whether a rank came too late is for rank 0 to say, and for all the same.
        answer = self._board.receive(name, _Answer, patience=2 * self._patience)
        self._board.remove(name)
        return answer

    # --- rank 0 --------------------------------------------------------------------------------

    def _lead(self, token: str, mine: _Summary, details: _Details | None) -> _Answer:
        asked: list[int] = []
        try:
            summaries = self._hear_all(token, mine)
            asked = self._whom_to_ask(summaries)
            found = self._details(token, asked, details)
            self._learn(summaries, found)
            answers = [self._answer(rank, each) for rank, each in enumerate(summaries)]
        except Error as problem:
            refused = isinstance(problem, ConfigError)
            answer = _Answer(problem=problem.sentence, hint=problem.hint, refused=refused)
            answers = [answer] * self._board.world_size
            self._digests = []
        for rank in range(1, self._board.world_size):
            where = "told" if rank in asked else "to"
            self._board.post(f"sharded/{token}/{where}/{rank}", answers[rank])
        return answers[0]

    def _hear_all(self, token: str, mine: _Summary) -> list[_Summary]:
        others = range(1, self._board.world_size)
        heard = [self._hear(f"sharded/{token}/from/{rank}", _Summary, rank) for rank in others]
        found = [mine, *heard]
        for rank, each in enumerate(found):
            if each.problem:
                raise EnvironmentFailure(f"rank {rank}: {each.problem}")
        return found

    def _hear(self, name: str, kind: type[T], rank: int) -> T:
        found = self._board.receive(name, kind, sender=rank, patience=self._patience)
        self._board.remove(name)
        return found

    def _whom_to_ask(self, summaries: list[_Summary]) -> list[int]:
        """One of each kind. Two that differ in values, and must not, are enough to say so."""
        kinds: dict[str, dict[str, int]] = {}
        for rank, each in enumerate(summaries):
            of_kind = kinds.setdefault(each.held, {})
            if each.values not in of_kind and len(of_kind) < 2:
                of_kind[each.values] = rank
        several = len(kinds) > 1 or any(len(of_kind) > 1 for of_kind in kinds.values())
        return sorted(
            rank
            for held, of_kind in kinds.items()
            for values, rank in of_kind.items()
            if held not in self._known or (several and values)
        )

    def _details(self, token: str, asked: list[int], mine: _Details | None) -> dict[int, _Details]:
        found = {}
        for rank in asked:
            if rank:
                self._board.post(f"sharded/{token}/to/{rank}", _Answer(describe=True))
        for rank in asked:
            if rank:
                found[rank] = self._hear(f"sharded/{token}/details/{rank}", _Details, rank)
            elif mine is not None:
                found[0] = mine
        return found

    def _learn(self, summaries: list[_Summary], found: dict[int, _Details]) -> None:
        digests = [each.held for each in summaries]
        first_of: dict[str, int] = {}
        for rank, details in found.items():
            self._known[digests[rank]] = details.held
            first = first_of.setdefault(digests[rank], rank)
            if first != rank:
                _compare(details, rank, found[first], first)
        if digests == self._digests:
            return
        members: dict[str, list[int]] = {}
        for rank, digest in enumerate(digests):
            members.setdefault(digest, []).append(rank)
        groups = [
            RankGroup(
                tuple(ranks),
                self._known[digest],
                found[first_of[digest]].samples if digest in first_of else {},
            )
            for digest, ranks in members.items()
        ]
        self.plan = merge(groups, self._replicas)
        self._latest += 1
        self._digests = digests
        self._known = {digest: self._known[digest] for digest in members}
        number = {digest: i for i, digest in enumerate(members)}
        self._group_of = [number[digest] for digest in digests]
        self.first_of_groups = tuple(ranks[0] for ranks in members.values())
        self.index_text = self.plan.index.to_json()

    def _answer(self, rank: int, mine: _Summary) -> _Answer:
        assert self.plan is not None
        if mine.plan == self._latest:
            return _Answer()
        return _Answer(holders=self.plan.holders[self._group_of[rank]], plan=self._latest)


def _compare(mine: _Details, rank: int, other: _Details, other_rank: int) -> None:
    """Two ranks that hold the same: are the plain tensors equal?"""
    for each in mine.held.tensors:
        values, others = mine.samples.get(each.name), other.samples.get(each.name)
        is_weight = each.layout == WHOLE and is_matrix(each)
        if is_weight and values and others and differ(values, others):
            raise other_values(each.name, [other_rank], [rank])


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()
