"""How long: seconds, a timedelta, or '5m'. One reading of it for every public name."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

from holdfast.errors import ConfigError

Duration: TypeAlias = float | timedelta | str
"""seconds, a timedelta, or a text such as "30s", "5m", "2h", "1d" """

LONGEST = 10 * 365 * 86400.0
"""seconds: ten years, so that infinity and a sum with the clock's time stay within bounds"""
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TEXT = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)\s*(ms|s|min|m|h|d)")
_HINT = 'write seconds (30), a timedelta, or a text: "30s", "5m", "2h"'


def in_seconds(name: str, value: Duration) -> float:
    """The seconds that `value` means.

    Args:
        name: the parameter it was given as, for the error.
        value: seconds, a timedelta, or a text such as "5m".

    Raises:
        ConfigError: it is not a duration, or not greater than 0.
    """
    seconds = _seconds(value)
    if seconds is None:
        raise ConfigError(f"{name} must be a duration, got {value!r}", hint=_HINT)
    if not seconds > 0:
        raise ConfigError(f"{name} must be > 0, got {value}")
    if seconds > LONGEST:
        raise ConfigError(f"{name} must be at most {LONGEST:.0f} s, got {value}")
    return seconds


def _seconds(value: object) -> float | None:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    found = _TEXT.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    return float(found[1]) * _UNITS[found[2]] if found else None
