"""What the driver says of a GPU, and what the kernel log says of GPUs. Pure nouns."""

from __future__ import annotations

import msgspec


class GpuSignal(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The base of what is seen of GPUs while a job runs."""


class GpuLook(GpuSignal, frozen=True):
    index: int
    uuid: str
    """'GPU-f3aa6b35-…'"""
    busy: int | None
    """per cent of the last moment (up to a second) in which a kernel of any process ran; None
    where it is not told: of a GPU that is split into parts (MIG)"""
    power: float
    """watts"""
    limit: float
    """watts; 0 unknown"""
    pids: tuple[int, ...] = ()
    """that use it, as the driver numbers them: outside of containers"""
    bus_id: str = ""
    """'0000:3d:00.0'"""
    memory: int = 0
    """bytes in use, by all processes"""
    memory_total: int = 0
    """bytes; 0 unknown"""
    lost: str = ""
    """the driver's words when it cannot reach this GPU any more; nothing else is known then"""
    silent: str = ""
    """why nothing is known of it now: 'no answer within 1 s'; it may be busy, or hang"""
    uncorrected: int | None = None
    """memory errors that ECC could not correct, since the driver was loaded; None unknown"""
    new_uncorrected: int = 0
    """how many of them came while this job ran"""


class GpuEvent(GpuSignal, frozen=True):
    """A line of NVIDIA's driver in the kernel log, since this attempt started."""

    number: int
    """of the Xid, or of the SXid of an NVSwitch"""
    bus_id: str
    """as the driver writes it: '0000:3d:00'"""
    line: str
    pid: int | None = None
    """in whose name the GPU worked; None unknown, and inside a container, where numbers differ"""
    switch: bool = False
    """of an NVSwitch, not of a GPU"""
