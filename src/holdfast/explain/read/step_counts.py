"""Lines that count upwards (steps, epochs, a progress bar) -> which writers went on after a line.

A program that dies of an exception counts no further. So an exception with such lines after it,
by the same writer, was caught: a missing optional library, a download that was tried again.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections import defaultdict

from holdfast.analysis.logs.wreckage import LogLine

MOST = 20_000
"""counts of one source that are kept: far more than samples around errors hold"""
WRITERS = 200
"""whose counts are compared with an exception that does not name its writer"""
ADVANCES = 3
"""different counts, each above the one before, that show that a program went on; the line that a
dying program had buffered, and a neighbour that finishes its step, are fewer"""

_COUNT = re.compile(
    r"(?i)(?<![a-z])(?P<name>(?:global[_ ]?|train(?:ing)?[_ ]?)?step|iter(?:ation)?|epoch|batch"
    r"|num_updates|update)s?\b['\"]?[ \t]{0,4}[:=#\[(]{0,2}[ \t]{0,8}"
    r"(?P<value>\d{1,12}(?:\.\d{1,6})?)"
)
_BAR = re.compile(r"(?P<value>\d{1,9})/\d{1,9} \[[\d:]{4,9}<")
"""tqdm: `120/1000 [00:12<01:28, …`"""
_TROUBLE = re.compile(r"Error|Exception|File \"|Timeout|timed out")

_Writer = tuple[object, ...]


class StepCounts:
    """The counts of one source, as far as its lines were looked at."""

    def __init__(self) -> None:
        self._counts: dict[tuple[_Writer, str], dict[int, float]] = defaultdict(dict)
        self._kept = 0

    def note(self, line: LogLine) -> None:
        text = line.text[:400]
        if self._kept >= MOST or _TROUBLE.search(text):
            return
        for name, value in _counts(text):
            known = self._counts[_writer(line), name]
            self._kept += line.number not in known
            known.setdefault(line.number, value)

    def after(self, line: LogLine, number: int) -> tuple[int, int]:
        """How far its writer counted on after the line of this number, and in which line it last
        did; where the line does not name its writer, how far any writer did."""
        writer = _writer(line)
        series = self._series.get(writer, []) if any(writer) else self._longest
        return max((one.after(number) for one in series), default=(0, 0))

    @functools.cached_property
    def _series(self) -> dict[_Writer, list[_Series]]:
        """Made once everything was noted: a log may hold thousands of exceptions."""
        found: dict[_Writer, list[_Series]] = {}
        for (writer, _), count in self._counts.items():
            found.setdefault(writer, []).append(_Series(count))
        return found

    @functools.cached_property
    def _longest(self) -> list[_Series]:
        every = [one for series in self._series.values() for one in series]
        return sorted(every, key=lambda one: len(one.lines), reverse=True)[:WRITERS]


class _Series:
    """What one writer counted under one name: for each line, how far it came from there."""

    def __init__(self, count: dict[int, float]) -> None:
        self.lines = sorted(count)
        self._advances = [0] * len(self.lines)
        above: list[int] = []
        """places after this one whose values rise, the nearest on top"""
        for place in range(len(self.lines) - 1, -1, -1):
            value = count[self.lines[place]]
            while above and count[self.lines[above[-1]]] <= value:
                above.pop()
            self._advances[place] = 1 + (self._advances[above[-1]] if above else 0)
            above.append(place)

    def after(self, number: int) -> tuple[int, int]:
        """Different values, each above all before it, below this line; and the last line."""
        place = bisect.bisect_right(self.lines, number)
        return (self._advances[place], self.lines[-1]) if place < len(self.lines) else (0, 0)


def _counts(text: str) -> list[tuple[str, float]]:
    found = [(one["name"].lower(), float(one["value"])) for one in _COUNT.finditer(text)]
    return found + [("bar", float(one["value"])) for one in _BAR.finditer(text)]


def _writer(line: LogLine) -> _Writer:
    """(0,) is a writer too: each part is None, '' or a text."""
    if line.rank is not None:
        return (f"rank {line.rank}",)
    local = "" if line.local_rank is None else f"local {line.local_rank}"
    return (local, line.host, "" if line.pid is None else f"pid {line.pid}")
