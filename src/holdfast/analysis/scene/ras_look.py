"""What NCCL's RAS said of the running job. Pure nouns."""

from __future__ import annotations

import msgspec

from holdfast.analysis.ras.answer import RasAnswer


class RasLook(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    at: float
    """when it answered, by the monotonic clock"""
    answer: RasAnswer
    before: RasAnswer | None = None
    """an earlier answer of the same attempt, to see what moved since"""
