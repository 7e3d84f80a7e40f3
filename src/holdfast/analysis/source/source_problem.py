"""Something wrong in a script or launch script, in words, before a fault puts its name to it."""

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
