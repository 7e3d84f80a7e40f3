"""Durations as people write them, and the errors that name the parameter."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.errors import ConfigError
from holdfast.rank.durations import Duration, in_seconds


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (30, 30.0),
        (0.5, 0.5),
        (timedelta(minutes=2), 120.0),
        ("250ms", 0.25),
        ("30s", 30.0),
        (" 5M ", 300.0),
        ("5 min", 300.0),
        ("1.5h", 5400.0),
        ("2d", 172800.0),
    ],
)
def test_a_duration_is_seconds_a_timedelta_or_a_text(value: Duration, seconds: float) -> None:
    assert in_seconds("timeout", value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [0, -1, -0.5, float("nan"), "0s", "-5m", timedelta(0)])
def test_it_is_greater_than_0(value: Duration) -> None:
    with pytest.raises(ConfigError, match=r"^timeout must be > 0, got "):
        in_seconds("timeout", value)


def test_it_is_finite() -> None:
    with pytest.raises(ConfigError, match=r"^patience must be at most \d+ s, got inf$"):
        in_seconds("patience", float("inf"))


@pytest.mark.parametrize("value", ["", "5", "soon", "5 days ago", True, None, [5]])
def test_anything_else_is_refused_with_the_ways_to_write_it(value: object) -> None:
    with pytest.raises(ConfigError, match=r"^every must be a duration, got ") as refused:
        in_seconds("every", value)  # type: ignore[arg-type]
    assert '"5m"' in refused.value.hint
