"""The GPUs of this node while a job runs: asked when it stalls, compared with its start."""

from __future__ import annotations

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.gpu import GpuLook
from holdfast.system import gpus


class GpuWatch:
    """What hangs, the driver or one GPU, is asked once in an attempt."""

    def __init__(self) -> None:
        self._before: dict[int, GpuLook] = {}
        """by index, as they were when the ranks were started"""
        self._hangs: Unread | None = None
        self._silent: tuple[GpuLook, ...] = ()

    def begin(self) -> None:
        """The ranks of an attempt were started."""
        self._hangs, self._silent = None, ()
        seen = self._ask()
        self._before = {gpu.index: gpu for gpu in seen} if isinstance(seen, tuple) else {}

    def look(self) -> tuple[GpuLook, ...] | Unread | None:
        """None on a machine without NVIDIA's driver."""
        seen = self._ask()
        if not isinstance(seen, tuple):
            return seen
        return tuple(_compared(gpu, self._before.get(gpu.index)) for gpu in seen)

    def _ask(self) -> tuple[GpuLook, ...] | Unread | None:
        if self._hangs is not None:
            return self._hangs
        if not gpus.has_driver():
            return None
        seen = gpus.look(without=[gpu.index for gpu in self._silent])
        if isinstance(seen, Unread):
            self._hangs = seen if seen.timed_out else None
            return seen
        seen = tuple(sorted((*seen, *self._silent), key=lambda gpu: gpu.index))
        self._silent = tuple(gpu for gpu in seen if gpu.silent)
        return seen


def _compared(now: GpuLook, before: GpuLook | None) -> GpuLook:
    """A GPU that is lost or silent tells nothing, not even its name; errors count from the
    start."""
    if before is None:
        return now
    if now.lost or now.silent:
        return msgspec.structs.replace(before, lost=now.lost, silent=now.silent)
    if now.uncorrected is None or before.uncorrected is None:
        return now
    return msgspec.structs.replace(
        now, new_uncorrected=max(0, now.uncorrected - before.uncorrected)
    )
