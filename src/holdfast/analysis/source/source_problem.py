"""Something about a recipe that does not fit together, in words, before a fault signs it."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.findings import Place


class SourceProblem(NamedTuple):
    status: str
    """'error', 'warning' or 'note'"""
    summary: str
    reason: str
    fix: str
    place: Place
