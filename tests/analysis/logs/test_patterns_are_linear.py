"""No line makes a log pattern slow: a log is written by whoever likes to."""

from __future__ import annotations

import re

import pytest

from holdfast import catalogue
from holdfast.analysis.logs.pattern import LONGEST_GAP, LONGEST_RUN, LogPattern, bounded
from holdfast.explain.read.scan import SHOWN
from tests.pumped import attacks, seconds

PATTERNS = catalogue.log_patterns()
YARDSTICK = (re.compile(r"\w{0,60}?\x01"), ("", "a", ""))
"""sixty steps at each character: what a short bounded gap costs"""
TIMES = 12
"""a pattern may cost so many yardsticks"""


def worst_of(pattern: LogPattern, size: int, forms: int | None = None) -> tuple[float, object]:
    """The slowest attack, and how many yardsticks it takes; measured again where it is slow."""
    yardstick = min(seconds(*YARDSTICK, size) for _ in range(3))
    found: tuple[float, object] = (0.0, "")
    for attack in attacks(pattern.pattern, forms=forms):
        took = seconds(pattern.regex, attack, size)
        if took > TIMES * yardstick:
            yardstick = min(yardstick, seconds(*YARDSTICK, size))
            took = min(seconds(pattern.regex, attack, size) for _ in range(3))
        found = max(found, (took / yardstick, attack), key=lambda one: one[0])
    return found


@pytest.mark.parametrize("group", range(8), ids=lambda number: f"every eighth from {number}")
def test_a_pumped_line_is_searched_in_bounded_time(group: int) -> None:
    slow = {
        pattern.name: worst
        for pattern in PATTERNS[group::8]
        if (worst := worst_of(pattern, SHOWN // 4, forms=2))[0] > TIMES
    }
    assert not slow


@pytest.mark.long
@pytest.mark.parametrize("pattern", PATTERNS, ids=[one.name for one in PATTERNS])
def test_the_longest_line_that_is_searched_takes_bounded_time(pattern: LogPattern) -> None:
    times, attack = worst_of(pattern, SHOWN)
    assert times < TIMES, attack


@pytest.mark.parametrize(
    ("written", "means"),
    [
        (r"a.*b", rf"a.{{0,{LONGEST_GAP}}}b"),
        (r"a.+?b", rf"a.{{1,{LONGEST_GAP}}}?b"),
        (r"rank \d+,", rf"rank \d{{1,{LONGEST_RUN}}},"),
        (r"'[^']*'", rf"'[^']{{0,{LONGEST_GAP}}}'"),
        (r"[*+]\*\+[\]*]x", r"[*+]\*\+[\]*]x"),  # not repetitions
        (r"(?P<why>.*)$", r"(?P<why>.*)$"),  # takes what is left: never fails
        (r"a.*|b(?:c.*)?x", rf"a.*|b(?:c.{{0,{LONGEST_GAP}}})?x"),
    ],
)
def test_every_repetition_gets_a_limit(written: str, means: str) -> None:
    assert bounded(written) == means
    re.compile(means)
