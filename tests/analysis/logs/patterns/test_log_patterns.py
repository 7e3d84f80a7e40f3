"""Every pattern logs are searched for: the reader finds its example; it is cheap to search."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

import pytest

from holdfast import catalogue
from holdfast.analysis.logs.pattern import LogPattern
from tests.analysis.logs.patterns.made import wreckage

PATTERNS = catalogue.log_patterns()


def test_names_are_unique() -> None:
    names = [pattern.name for pattern in PATTERNS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda s: s.name)
def test_the_reader_finds_its_example(pattern: LogPattern) -> None:
    found = wreckage(*pattern.example.splitlines()).sightings
    assert pattern.name in {sighting.pattern for sighting in found}


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda s: s.name)
def test_it_is_cheap_to_search(pattern: LogPattern) -> None:
    """Short anchors match everywhere; nested repeats can take for ever on a hostile line."""
    assert pattern.anchors
    assert all(len(anchor.encode()) >= 5 for anchor in pattern.anchors)
    assert not re.search(r"[+*]\)[+*]", pattern.pattern)


HOSTILE = ("a", "1", "a/", "x: ", "'")
LONG = 2000
BOUNDED = re.compile(r"(?P<name>[^\s\[]{1,64})\[(?P<pid>\d+)\]: segfault at")
"""what a careful pattern costs on such lines: each start looks a bounded way ahead"""


def slowest(pattern: re.Pattern[str], fillings: Iterable[str], anchors: tuple[str, ...]) -> float:
    """The worst of long lines, filled to provoke backtracking."""
    times = [0.0]
    for filling in fillings:
        for anchor in anchors:
            filled = (filling * LONG)[: LONG - len(anchor)]
            for line in (filled + anchor, anchor + filled):
                began = time.process_time()
                pattern.search(line)
                times.append(time.process_time() - began)
    return max(times)


def test_no_line_can_hold_us_up() -> None:
    """Ten times the cost of a bounded pattern is the most that any may take."""
    reference = max(slowest(BOUNDED, HOSTILE, ("segfault at",)), 0.01)
    slow = {
        pattern.name: cost
        for pattern in PATTERNS
        if (cost := slowest(
            pattern.regex,
            (*HOSTILE, pattern.example[: len(pattern.example) // 2]),
            pattern.anchors[:1],
        )) > 10 * reference
    }  # fmt: skip
    assert not slow
