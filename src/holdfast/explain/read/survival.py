"""Which exceptions of one log its program survived: by what Python says, and by what came after."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.analysis.logs.wreckage import LogLine
from holdfast.explain.read.collected import Survived
from holdfast.explain.read.records import RecordLine
from holdfast.explain.read.scan import FOLLOWING, Hit
from holdfast.explain.read.step_counts import ADVANCES, StepCounts

SAMPLES = 300
"""places of a log whose neighbourhood is searched for progress"""
QUIET = 200
"""lines without a pattern, after which the lines before the next one are looked at"""
NEAR = 20
ANNOUNCED = 2
"""lines between 'Exception ignored in' and its traceback, at most"""


class Survival:
    """Fed while one log is read, asked at its end."""

    def __init__(self, line_of: Callable[[int, str], LogLine]) -> None:
        self._line_of = line_of
        self._counts = StepCounts()
        self._sampled = 0
        self._last = 0
        self._ignored: dict[object, int] = {}
        self._caught: list[tuple[int, LogLine, int, int, bool]] = []

    def pass_by(self, hit: Hit | RecordLine) -> None:
        """A line with a pattern: what was before it, where nothing was looked at for long."""
        if hit.number - self._last > QUIET:
            self._sample(hit, after=False)
        self._last = hit.number

    def announce(self, writer: object, number: int) -> None:
        """The next exception of this writer is one that Python itself calls ignored."""
        self._ignored[writer] = number

    def catch(
        self,
        index: int,
        hit: Hit | RecordLine,
        line: LogLine,
        writer: object,
        *,
        ends: int,
        lines: int,
    ) -> None:
        """The exception of this index begins here, is named `ends` lines below and has so many."""
        announced = hit.number - self._ignored.get(writer, -ANNOUNCED - 1) <= ANNOUNCED
        named, last = hit.place(ends)[0], hit.place(max(lines, ends))[0]
        self._caught.append((index, line, named, last, announced))
        self._sample(hit, after=True)

    def _sample(self, hit: Hit | RecordLine, *, after: bool) -> None:
        if self._sampled >= SAMPLES:
            return
        self._sampled += 1
        before = hit.before(NEAR)
        self._note(enumerate(before, start=hit.number - len(before)))
        if after:
            following = hit.after(FOLLOWING)
            self._note((hit.place(n)[0], raw) for n, raw in enumerate(following, start=1))

    def _note(self, lines: Iterable[tuple[int, str]]) -> None:
        for number, raw in lines:
            self._counts.note(self._line_of(number, raw))

    def survived(self, tail: Iterable[tuple[int, str]]) -> list[Survived]:
        """Given the end of the log."""
        if not self._caught:
            return []
        self._note(tail)
        found = [
            Survived(index, line, last, announced, *self._counts.after(line, named))
            for index, line, named, last, announced in self._caught
        ]
        return [one for one in found if one.ignored or one.steps >= ADVANCES]
