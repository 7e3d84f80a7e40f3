"""The newest checkpoint is damaged, or all of them are out of reach, when a rank dies."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

from holdfast.analysis.drill.host_acts import DamageCheckpoint, HideCheckpoints
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.acts.save_watch import pause_until_quiet
from holdfast.drill.stage import CannotInjectHere, Stage

QUIET_WITHIN = 10.0
UNFINISHED = (".tmp", ".part", ".lock")


@carries_out(DamageCheckpoint)
class DamageCarrier(Carrier):
    def inject(self, act: DamageCheckpoint, stage: Stage) -> None:
        folder = _folder(stage)
        pause_until_quiet(folder, seconds=QUIET_WITHIN)
        file = largest_file_of_newest(folder)
        if file is None:
            raise CannotInjectHere(f"no checkpoint was in {folder.name} {stage.rehearsal.when}")
        damage(file, act.how, inside=stage.folder.path)
        kill_rank(stage)


@carries_out(HideCheckpoints)
class HideCarrier(Carrier):
    def inject(self, act: HideCheckpoints, stage: Stage) -> None:  # noqa: ARG002
        folder = _folder(stage)
        pause_until_quiet(folder, seconds=QUIET_WITHIN)
        folder.rename(stage.folder.path / "hidden")
        kill_rank(stage)


def kill_rank(stage: Stage) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(stage.pid(stage.rehearsal.rank), signal.SIGKILL)


def largest_file_of_newest(folder: Path) -> Path | None:
    """A checkpoint is a file, or a folder, in that folder; pointers to one are small."""
    largest = [max(files, key=lambda file: file.stat().st_size)
               for entry in folder.iterdir() if _may_be_one(entry)
               if (files := _files(entry))]  # fmt: skip
    if not largest:
        return None
    substantial = max(file.stat().st_size for file in largest) / 4
    whole = [file for file in largest if file.stat().st_size >= substantial]
    return max(whole, key=lambda file: file.stat().st_mtime_ns)


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


def _may_be_one(entry: Path) -> bool:
    hidden = entry.name.startswith(".") or entry.name.endswith(UNFINISHED)
    return not hidden and not entry.is_symlink()


def _files(entry: Path) -> list[Path]:
    if entry.is_file():
        return [entry]
    return [file for file in entry.rglob("*") if file.is_file() and not file.is_symlink()]
