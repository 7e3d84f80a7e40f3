"""All ranks compare what they hold, through the board, without waiting long for any of them.

    every rank: N/RANK {digests}  ->  rank 0: N/word/0 {whom it asks, or the verdict}
    ranks asked: N/finding/RANK   ->  rank 0: N/word/1 {verdict}

Only where digests differ does rank 0 post what it holds, for one rank of each kind to look at. A
rank that comes late is waited for a moment; then training continues, and the answer is looked for
at later sync points.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import msgspec

from holdfast.checkpoint.answering_store import StoreTroubleError
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.ranks import differences
from holdfast.checkpoint.ranks.contents import RankContents, RankSummary, contents
from holdfast.checkpoint.ranks.differences import RankDifference, RanksVerdict
from holdfast.checkpoint.state import State
from holdfast.errors import Error, RanksDiffer
from holdfast.rank.phase import waiting_for
from holdfast.rank.print_line import say

PATIENCE = 10.0
"""seconds for ranks that are late; the comparison then ends when they have come"""
SECONDS_FOR_OTHERS = 2.0
"""that rank 0 waits for the others to have read a refusal: it may host the store they read"""
MOST_ASKED = 8
"""kinds of ranks that are looked at one by one"""


class _Word(msgspec.Struct, frozen=True, kw_only=True):
    """Rank 0's."""

    asked: tuple[int, ...] = ()
    verdict: RanksVerdict | None = None


class RankComparison:
    """One per Checkpoint and rank."""

    def __init__(self, board: MessageBoard, state: State, *, patience: float = PATIENCE) -> None:
        self._board, self._state, self._patience = board, state, patience
        self._name = ""
        self._mine: RankContents | None = None
        self._alike: dict[int, list[int]] = {}
        self._next: Callable[[], bool] | None = None
        self.accepted = False
        """the user says that rank 0's state is right for all"""

    @property
    def begun(self) -> bool:
        return bool(self._name)

    def begin(self, name: str) -> None:
        """All ranks, at the same step and under the same name. Raises RanksDiffer, on all ranks the
        same."""
        if self._board.world_size == 1:
            return
        self._name = name
        with contextlib.suppress(StoreTroubleError), waiting_for(0):
            self._board.post(self._key(self._board.rank), self._look())
            self._next = self._gather if self._board.rank == 0 else self._hear
            self._wait(self._patience)

    def poll(self) -> None:
        """At later sync points: what has come meanwhile."""
        if self._next is not None:
            with contextlib.suppress(StoreTroubleError):
                self._wait(0.0)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        pause = 0.001
        while self._next is not None:
            if self._next():
                continue
            if time.monotonic() >= until:
                return
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _look(self) -> RankSummary:
        """Whatever goes wrong here must not end a training."""
        try:
            self._mine = contents(self._state)
            return self._mine.summary()
        except Error as problem:  # what cannot be saved is said by the save
            return RankSummary(problem=problem.sentence)
        except Exception as odd:  # noqa: BLE001
            return RankSummary(problem=f"{type(odd).__name__}: {odd}")

    def _key(self, name: object) -> str:
        return f"ranks/{self._name}/{name}"

    # --- rank 0: each answers whether there was something to do ----------------------------------

    def _gather(self) -> bool:
        others = range(1, self._board.world_size)
        if not self._board.is_posted(*map(self._key, others)):
            return False
        found = [
            self._board.receive(self._key(rank), RankSummary, sender=rank)
            for rank in range(self._board.world_size)
        ]
        if odd := next((rank for rank, one in enumerate(found) if one.problem), None):
            say(f"the ranks were not compared: rank {odd}: {found[odd].problem}")
        self._alike = _alike(found)
        asked = tuple(sorted(self._alike))[:MOST_ASKED]
        if self._mine is None or not asked:
            self._end(0, RanksVerdict())
            return True
        self._board.post(self._key("contents"), self._mine)
        self._board.post(self._key("word/0"), _Word(asked=asked))
        self._next = self._judge
        return True

    def _judge(self) -> bool:
        asked = tuple(sorted(self._alike))[:MOST_ASKED]
        if not self._board.is_posted(*(self._key(f"finding/{rank}") for rank in asked)):
            return False
        found = {
            rank: self._board.receive(self._key(f"finding/{rank}"), RankDifference, sender=rank)
            for rank in asked
        }
        self._board.remove(self._key("contents"))  # it may be large
        self._end(1, differences.verdict(found, self._alike))
        return True

    def _end(self, number: int, verdict: RanksVerdict) -> None:
        if self.accepted and verdict.refusal:
            verdict = RanksVerdict(note=f"{verdict.refusal}; accepted")
        self._board.post(self._key(f"word/{number}"), _Word(verdict=verdict))
        self._close()
        if verdict.note:
            say(verdict.note)
        if verdict.refusal:
            self._wait_for_readers()
            raise RanksDiffer(verdict.refusal, hint=verdict.hint)

    def _wait_for_readers(self) -> None:
        until = time.monotonic() + SECONDS_FOR_OTHERS
        while self._board.count(self._key("read"), 0) < self._board.world_size - 1:
            if time.monotonic() > until:
                return
            time.sleep(0.01)

    # --- the others ------------------------------------------------------------------------------

    def _hear(self) -> bool:
        if not self._board.is_posted(self._key("word/0")):
            return False
        word = self._board.receive(self._key("word/0"), _Word)
        if self._board.rank in word.asked:
            first = self._board.receive(self._key("contents"), RankContents)
            assert self._mine is not None, "rank 0 asks those that have something to look at"
            found = differences.difference(first, self._mine, self._board.rank)
            self._board.post(self._key(f"finding/{self._board.rank}"), found)
        self._next = self._hear_verdict
        return self._obey(word)

    def _hear_verdict(self) -> bool:
        if not self._board.is_posted(self._key("word/1")):
            return False
        return self._obey(self._board.receive(self._key("word/1"), _Word))

    def _obey(self, word: _Word) -> bool:
        if word.verdict is not None:
            self._close()
            if word.verdict.refusal:
                self._board.count(self._key("read"))
                raise RanksDiffer(word.verdict.refusal, hint=word.verdict.hint)
        return True

    def _close(self) -> None:
        self._next, self._mine = None, None


def _alike(found: list[RankSummary]) -> dict[int, list[int]]:
    """The ranks that differ from rank 0: {the first of each kind: all of that kind}."""
    kinds: dict[RankSummary, list[int]] = {}
    for rank, summary in enumerate(found):
        if summary != found[0] and not summary.problem:
            kinds.setdefault(summary, []).append(rank)
    return {ranks[0]: ranks for ranks in kinds.values()}
