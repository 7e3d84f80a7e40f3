"""Versions as numbers that can be compared."""

from __future__ import annotations

import re

_NUMBERS = re.compile(r"\D{0,3}([0-9]+(?:\.[0-9]+)*)")


def release(version: str) -> tuple[int, ...]:
    """'2.13.0+cpu' -> (2, 13, 0); () where the text has no number in front.

    Not by PEP 440: NCCL, drivers and custom builds call themselves as they like.
    """
    found = _NUMBERS.match(version.strip())
    return tuple(int(part) for part in found[1].split(".")) if found else ()
