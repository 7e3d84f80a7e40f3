"""Which of five places says how long ranks have between SIGTERM and SIGKILL."""

from __future__ import annotations

import argparse

import pytest

from holdfast.errors import ConfigError
from holdfast.run.launch import grace

OURS, TORCHS = "HOLDFAST_GRACE", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


@pytest.mark.parametrize(
    ("typed", "environment", "seconds"),
    [
        ({"grace": None}, {}, 30.0),
        ({"grace": None}, {TORCHS: "90"}, 90.0),
        ({"grace": None}, {TORCHS: "90", OURS: "60.5"}, 60.5),
        ({"grace": None}, {TORCHS: "", OURS: ""}, 30.0),
        ({"grace": None, "shutdown_timeout": 7}, {TORCHS: "90", OURS: "60"}, 7.0),
        ({"grace": 0.0, "shutdown_timeout": 7}, {OURS: "60"}, 0.0),
        ({"grace": None, "shutdown_timeout": None}, {OURS: "60"}, 60.0),
    ],
)
def test_the_first_that_says_so_counts(
    typed: dict[str, float | None], environment: dict[str, str], seconds: float
) -> None:
    assert grace.seconds(argparse.Namespace(**typed), environment) == seconds


@pytest.mark.parametrize(
    ("typed", "environment", "words"),
    [
        (-1.0, {}, "--grace must be >= 0 seconds, got -1"),
        (None, {OURS: "soon"}, "HOLDFAST_GRACE must be >= 0 seconds, got soon"),
        (None, {TORCHS: "inf"}, f"{TORCHS} must be >= 0 seconds, got inf"),
    ],
)
def test_what_is_no_time_is_said(
    typed: float | None, environment: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        grace.seconds(argparse.Namespace(grace=typed), environment)
