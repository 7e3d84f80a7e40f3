"""Every wording that logs are searched for: found in its own example, and safe to search."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

import pytest

from holdfast import catalogue
from holdfast.analysis.logs.pattern import LogPattern

SIGNATURES = catalogue.log_patterns()


def test_names_are_unique() -> None:
    names = [signature.name for signature in SIGNATURES]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: s.name)
def test_its_example_is_found(signature: LogPattern) -> None:
    assert signature.regex.search(signature.example), "the pattern finds its example"
    assert any(anchor in signature.example for anchor in signature.anchors)


@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda s: s.name)
def test_it_is_cheap_to_search(signature: LogPattern) -> None:
    """Short anchors match everywhere; nested repeats can take for ever on a hostile line."""
    assert signature.anchors
    assert all(len(anchor) >= 5 for anchor in signature.anchors)
    assert not re.search(r"[+*]\)[+*]", signature.pattern)


HOSTILE = ("a", "1", "a/", "x: ", "'")
LONG = 2000
BOUNDED = re.compile(r"(?P<name>[^\s\[]{1,64})\[(?P<pid>\d+)\]: segfault at")
"""what a careful wording costs on such lines: each start looks a bounded way ahead"""


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
    """Ten times the cost of a bounded wording is the most that any may take."""
    reference = max(slowest(BOUNDED, HOSTILE, ("segfault at",)), 0.01)
    slow = {
        signature.name: cost
        for signature in SIGNATURES
        if (cost := slowest(
            signature.regex,
            (*HOSTILE, signature.example[: len(signature.example) // 2]),
            signature.anchors[:1],
        )) > 10 * reference
    }  # fmt: skip
    assert not slow
