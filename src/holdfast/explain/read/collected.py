"""Everything found so far, in bounded memory: the one mutable thing on the way to a Wreckage."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from holdfast.analysis.job.journal_records import RuleRecord
from holdfast.analysis.logs.wreckage import (
    Exit,
    InputSource,
    LiveVerdict,
    LoggedException,
    LogLine,
    LostRun,
    Sighting,
)
from holdfast.analysis.machine import Unread
from holdfast.analysis.ras.answer import RasAnswer
from holdfast.analysis.scene.scene import Recorder, Stack
from holdfast.explain.read.rule_reader import RuleReader

FIRST = 20
LAST = 5
"""sightings of one pattern by one writer that are kept; the rest is counted"""
MOST = 200_000
"""sightings in all: 1,024 ranks that say 200 different things"""
RAISED = 5_000


class _Pile:
    """The sightings of one pattern by one writer."""

    __slots__ = ("count", "first", "last")

    def __init__(self) -> None:
        self.first: list[Sighting] = []
        self.last: deque[Sighting] = deque(maxlen=LAST)
        self.count = 0

    def add(self, one: Sighting) -> bool:
        """Whether more is kept than before."""
        self.count += 1
        if len(self.first) < FIRST:
            self.first.append(one)
            return True
        full = len(self.last) == LAST
        self.last.append(one)
        return not full

    def kept(self) -> Iterator[Sighting]:
        left_out = self.count - len(self.first) - len(self.last)
        if left_out:
            yield msgspec.structs.replace(self.first[0], count=left_out + 1)
        yield from self.first[1:] if left_out else self.first
        yield from self.last


class Survived(NamedTuple):
    """An exception after which its program continued, as far as its own log shows."""

    position: int
    """among all that were caught"""
    first: LogLine
    last: int
    """the number of its last line"""
    ignored: bool
    """Python itself says that it ended nothing"""
    steps: int
    """how many different counts came after it"""
    until: int
    """the number of the last line with such a count"""


class Collected:
    def __init__(self) -> None:
        self.sources: list[InputSource] = []
        self.raised: list[LoggedException] = []
        self.exits: list[Exit] = []
        """from our own journal; those of launchers are made from their log lines"""
        self.live_verdicts: tuple[LiveVerdict, ...] = ()
        self.recorders: dict[int, Recorder | Unread] = {}
        self.worlds: dict[str, tuple[int, ...]] = {}
        """from our own journal: name -> ranks by their numbers in it, where there were several"""
        self.stacks: list[tuple[int | None, int | None, Stack]] = []
        """(rank, pid, its main thread)"""
        self.survived: list[Survived] = []
        self.spans: list[tuple[LogLine, LogLine]] = []
        """first and last line of a writer in a source"""
        self.pids: dict[int, int] = {}
        """rank -> pid, as our own journal tells"""
        self.ras: list[RasAnswer] = []
        self.host = ""
        self.world_size: int | None = None
        self.attempts: dict[str, int] = {}
        """source -> the attempt in its name"""
        self.local_ranks: dict[str, int] = {}
        """source -> the local rank in its name"""
        self.lost_runs: list[LostRun] = []
        self.rules = RuleReader()
        self.rules_told: list[tuple[RuleRecord, str, int]] = []
        self.ended_well = False
        self.order = 0
        self._piles: dict[tuple[object, ...], _Pile] = {}
        self._kept = 0

    def see(self, one: Sighting) -> None:
        line = one.line
        key = (one.pattern, line.source, line.rank, line.local_rank, line.host, line.pid)
        pile = self._piles.get(key)
        if pile is None:
            if self._kept >= MOST:
                return
            pile = self._piles[key] = _Pile()
        self._kept += pile.add(one)

    @property
    def has_enough_raised(self) -> bool:
        return len(self.raised) >= RAISED

    def catch(self, one: LoggedException) -> int | None:
        """Its index; None when there are too many already."""
        if self.has_enough_raised:
            return None
        self.raised.append(one)
        return len(self.raised) - 1

    def sightings(self) -> list[Sighting]:
        kept = [one for pile in self._piles.values() for one in pile.kept()]
        return sorted(kept, key=lambda one: one.order)
