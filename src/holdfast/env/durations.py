"""Durations as Slurm and `timeout` write them."""

from __future__ import annotations

import re

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}


def slurm(text: str) -> float | None:
    """--time: minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S; None for infinite and for no time."""
    days, dash, rest = text.strip().rpartition("-")
    parts = rest.split(":")
    if not all(re.fullmatch(r"\d{1,9}", part) for part in (*parts, *([days] if dash else []))):
        return None
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = (*numbers, 0, 0)[:3]
        return int(days) * 86400.0 + hours * 3600 + minutes * 60 + seconds
    if len(numbers) == 1:
        return numbers[0] * 60.0
    if len(numbers) == 2:
        return numbers[0] * 60.0 + numbers[1]
    return numbers[0] * 3600.0 + numbers[1] * 60 + numbers[2] if len(numbers) == 3 else None


def coreutils(text: str) -> float | None:
    """`timeout`'s own: a number, with s, m, h or d; 0 is no limit."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d*)?)([smhd]?)", text)
    return float(match[1]) * UNITS[match[2]] or None if match else None
