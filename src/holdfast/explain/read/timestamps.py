"""Dates as logs write them -> seconds. Without a zone they count as UTC: only gaps matter."""

from __future__ import annotations

import calendar
import functools
import re

YEAR = 2000
"""for dates without one; a leap year, so that every day exists"""

_MONTHS = {name: number for number, name in enumerate(calendar.month_abbr) if name}
_DAYS = (
    re.compile(r"(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)"),
    re.compile(r"(?P<month>\d\d)/(?P<day>\d\d)/(?P<year>\d{4}|\d\d)"),
    re.compile(r"(?P<month>\d{1,2})(?P<day>\d\d)"),
    re.compile(r"(?P<name>[A-Z][a-z]{2}) +(?P<day>\d{1,2})(?: (?P<year>\d{4}))?"),
)


def seconds(day: str, time: str, *, year: int = YEAR) -> float | None:
    """'1115' or 'Nov 15' or '2026-11-15', and '01:03:15.148'; None when that is no moment."""
    midnight = _midnight(day, year)
    hours, _, rest = time.partition(":")
    minutes, _, secs = rest.partition(":")
    try:
        since = int(hours) * 3600 + int(minutes) * 60 + float(secs.replace(",", "."))
    except ValueError:
        return None
    return None if midnight is None else midnight + since


@functools.lru_cache(maxsize=256)
def _midnight(day: str, year: int) -> int | None:
    for form in _DAYS:
        found = form.fullmatch(day)
        if not found:
            continue
        parts = found.groupdict()
        month = _MONTHS.get(parts.get("name") or "", 0) or int(parts.get("month") or 0)
        told = int(parts.get("year") or year)
        if not 1 <= month <= 12 or not 1 <= int(parts["day"]) <= 31:
            return None
        return calendar.timegm(
            (told + 2000 if told < 100 else told, month, int(parts["day"]), 0, 0, 0)
        )
    return None
