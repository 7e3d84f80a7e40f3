"""Durations as schedulers write them, and as we say them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.collectives.group_timeouts import slurm_seconds
from holdfast.env.timeouts.schedulers import seconds_of_timeout
from holdfast.text import exact_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("30:15", 1815),
        ("1:00:00", 3600),
        ("2-0", 172800),
        ("1-12:30", 131400),
        ("0-00:10:05", 605),
        ("UNLIMITED", None),
        ("", None),
        ("-5", None),
        ("1:2:3:4", None),
    ],
)
def test_slurm(text: str, seconds: float | None) -> None:
    assert slurm_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5h", 5400), ("2d", 172800), ("10m", 600), ("0", None), ("soon", None)],
)
def test_coreutils(text: str, seconds: float | None) -> None:
    assert seconds_of_timeout(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (480, "8 min"),
        (90, "90 s"),
        (60, "60 s"),
        (7200, "2 h"),
        (0.1, "0.1 s"),
        (30.06, "30 s"),
        (172800, "2 days"),
        (8796.1, "2.4 h"),
        (None, "never"),
    ],
)
def test_exact(seconds: float | None, said: str) -> None:
    assert exact_duration(seconds) == said


@given(st.text(max_size=20))
def test_any_text_is_read_without_a_stumble(text: str) -> None:
    assert (slurm_seconds(text) or 0) >= 0
    assert (seconds_of_timeout(text) or 0) >= 0
