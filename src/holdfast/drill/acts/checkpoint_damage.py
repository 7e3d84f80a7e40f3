"""The newest checkpoint is damaged, or all of them are out of reach, when a rank dies."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from holdfast.analysis.drill import checkpoints
from holdfast.analysis.drill.host_acts import DamageCheckpoint, HideCheckpoints
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.acts.save_watch import pause_until_quiet
from holdfast.drill.stage import CannotInjectHere, Stage

QUIET_WITHIN = 10.0
SAVES_BESIDE_ITSELF = "the job saves into the folder it runs in, not into one of its own"


@carries_out(DamageCheckpoint)
class DamageCarrier(Carrier):
    def inject(self, act: DamageCheckpoint, stage: Stage) -> None:
        folder = _folder(stage)
        pause_until_quiet(folder, seconds=QUIET_WITHIN)
        found = checkpoints.find(stage.folder.listing())
        if found is None or found.newest is None:
            raise CannotInjectHere(f"no checkpoint was in {folder.name} {stage.rehearsal.when}")
        newest = stage.folder.work / found.newest.largest
        damage(newest, act.how, inside=stage.folder.path)
        kill_rank(stage)


@carries_out(HideCheckpoints)
class HideCarrier(Carrier):
    def inject(self, act: HideCheckpoints, stage: Stage) -> None:  # noqa: ARG002
        folder = _folder(stage)
        if folder == stage.folder.work:
            raise CannotInjectHere(SAVES_BESIDE_ITSELF)
        pause_until_quiet(folder, seconds=QUIET_WITHIN)
        self.hidden = folder.rename(stage.folder.path / "hidden")
        kill_rank(stage)

    def lift(self, act: HideCheckpoints, stage: Stage) -> None:  # noqa: ARG002
        """Unless the job has begun new ones there."""
        folder = stage.checkpoints
        if folder is not None and not checkpoints.find(stage.folder.listing()):
            if folder.exists():
                folder.rename(stage.folder.path / "empty")
            self.hidden.rename(folder)


def kill_rank(stage: Stage) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(stage.pid(stage.rehearsal.rank), signal.SIGKILL)


def damage(file: Path, how: str, *, inside: Path) -> None:
    """Only what is below `inside`: the user's own files may be linked from there."""
    if file.resolve() != inside.resolve() / file.relative_to(inside):
        raise CannotInjectHere(f"{file} is a link")
    fd = os.open(file, os.O_RDWR | os.O_NOFOLLOW)
    try:
        middle = os.fstat(fd).st_size // 2
        if how == "truncate":
            os.ftruncate(fd, middle)
            return
        (byte,) = os.pread(fd, 1, middle)
        os.pwrite(fd, bytes([byte ^ 0x10]), middle)
    finally:
        os.close(fd)


def _folder(stage: Stage) -> Path:
    if stage.checkpoints is None:
        raise CannotInjectHere("the job saves no checkpoints")
    if stage.checkpoints.is_symlink() or not stage.checkpoints.is_dir():
        raise CannotInjectHere(f"{stage.checkpoints} is no folder of the drill")
    return stage.checkpoints
