"""A file system of the job's own for its checkpoints, which gets full.

It is small only at the gate: tmpfs takes another size while it is mounted, so nothing has to be
written to fill it, nor to be known beforehand of how much the job writes.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from holdfast.analysis.drill.host_acts import FillDisk
from holdfast.drill import own_mounts
from holdfast.drill.acts.checkpoint_damage import SAVES_BESIDE_ITSELF
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import CannotInjectHere, Stage


class FullTmpfs:
    def __init__(self, stage: Stage, place: Path) -> None:
        self.size = psutil.virtual_memory().available // 2
        self.place = place
        options = f"size={self.size},mode={place.stat().st_mode & 0o7777:o}"
        self.mounts = own_mounts.for_job(stage, ["-t", "tmpfs", "-o", options, "tmpfs", str(place)])
        self.seen = self.mounts.path(place)
        """from outside"""

    def fill(self) -> None:
        """Smaller than what is in it is refused, by the kernel: then a save was under way."""
        for _ in range(100):
            state = os.statvfs(self.seen)
            used = (state.f_blocks - state.f_bfree) * state.f_frsize
            try:
                return self.mounts.remount(f"size={max(used, state.f_frsize)}", self.place)
            except OSError as problem:
                last = problem
        raise last

    def make_room(self) -> None:
        self.mounts.remount(f"size={self.size}", self.place)


@carries_out(FillDisk)
class FillDiskCarrier(Carrier):
    def prepare(self, act: FillDisk, stage: Stage) -> None:
        if stage.checkpoints is None:
            raise CannotInjectHere("the job saves no checkpoints")
        if stage.checkpoints == stage.folder.work:
            raise CannotInjectHere(SAVES_BESIDE_ITSELF)
        stage.checkpoints.mkdir(parents=True, exist_ok=True)
        self.disk = FullTmpfs(stage, stage.checkpoints)
        stage.checkpoints = self.disk.seen
        super().prepare(act, stage)

    def inject(self, act: FillDisk, stage: Stage) -> None:  # noqa: ARG002
        self.disk.fill()
        stage.release()

    def lift(self, act: FillDisk, stage: Stage) -> None:  # noqa: ARG002
        self.disk.make_room()
