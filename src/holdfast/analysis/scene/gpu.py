"""What the driver says of a GPU. Pure nouns."""

from __future__ import annotations

import msgspec


class GpuLook(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    index: int
    uuid: str
    """'GPU-f3aa6b35-…'"""
    busy: int
    """per cent of the last moment (up to a second) in which a kernel of any process ran"""
    power: float
    """watts"""
    limit: float
    """watts; 0 unknown"""
    pids: tuple[int, ...] = ()
    """that use it, as the driver numbers them: outside of containers"""
