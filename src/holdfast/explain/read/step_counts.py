"""Lines that count upwards (steps, epochs, a progress bar) -> which writers went on after a line.

A program that dies of an exception counts no further. So an exception with such lines after it,
by the same writer, was caught: a missing optional library, a download that was tried again.
"""

from __future__ import annotations

import re
from collections import defaultdict

from holdfast.analysis.logs.wreckage import LogLine

MOST = 20_000
"""counts of one source that are kept: far more than samples around errors hold"""
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
        return max(
            (
                (_advances([count[n] for n in sorted(count) if n > number]), max(count))
                for (other, _), count in self._counts.items()
                if not any(writer) or other == writer
            ),
            default=(0, 0),
        )


def _counts(text: str) -> list[tuple[str, float]]:
    found = [(one["name"].lower(), float(one["value"])) for one in _COUNT.finditer(text)]
    return found + [("bar", float(one["value"])) for one in _BAR.finditer(text)]


def _writer(line: LogLine) -> _Writer:
    """(0,) is a writer too: each part is None, '' or a text."""
    if line.rank is not None:
        return (f"rank {line.rank}",)
    local = "" if line.local_rank is None else f"local {line.local_rank}"
    return (local, line.host, "" if line.pid is None else f"pid {line.pid}")


def _advances(values: list[float]) -> int:
    """How many different values, each above all before it."""
    highest, count = float("-inf"), 0
    for value in values:
        if value > highest:
            highest, count = value, count + 1
    return count
