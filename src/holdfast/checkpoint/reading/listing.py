"""What is in a folder of checkpoints: steps, sizes, age, damage, what is unfinished. No torch."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from typing import Literal

import msgspec

from holdfast.analysis.checkpoints.manifest import (
    DAMAGED,
    WHY,
    Manifest,
    order_of,
    step_of,
    step_of_temporary,
)
from holdfast.checkpoint import reader_lock
from holdfast.checkpoint.choose import Candidate
from holdfast.checkpoint.reading.find import inspect, is_step_folder
from holdfast.errors import ConfigError, EnvironmentFailure

ListedState = Literal["complete", "damaged", "unreadable", "set aside", "unfinished"]


class ListedCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One folder of the list."""

    name: str
    path: str
    state: ListedState
    """'complete': all files are there in their size; their bytes were not looked at"""
    step: int
    bytes: int
    saved_at: float
    """wall seconds; 0 where it is not known"""
    world_size: int = 0
    kind: str = ""
    imported: str = ""
    kept: bool = False
    """for good, by keep_every_steps"""
    in_use: bool = False
    """something reads it now"""
    verified: bool | None = None
    """None: its digests were not looked at"""
    why: str = ""


def list_folder(folder: str) -> list[ListedCheckpoint]:
    """Newest first; then what was set aside, and what is being written or was left by a killed job.

    A single checkpoint is a list of one.
    """
    folder = os.path.abspath(folder)
    if not os.path.isdir(folder):
        what = "is not a folder" if os.path.lexists(folder) else "does not exist"
        raise ConfigError(f"{folder} {what}")
    if is_step_folder(folder):
        return [_listed(inspect(folder), set())]
    try:
        names = os.listdir(folder)
    except OSError as error:
        raise EnvironmentFailure(f"{folder} cannot be listed: {error.strerror}") from error
    found = [inspect(os.path.join(folder, name)) for name in names if order_of(name)]
    found.sort(key=lambda each: order_of(os.path.basename(each.path)) or (0, 0), reverse=True)
    kept = _kept(found)
    unfinished = sorted(name for name in names if step_of_temporary(name) is not None)
    return [
        *(_listed(each, kept) for each in found),
        *_set_aside(os.path.join(folder, DAMAGED)),
        *(_other(os.path.join(folder, name), "unfinished", _temporary_step(name))
          for name in unfinished),
    ]  # fmt: skip


def _temporary_step(name: str) -> int:
    return step_of_temporary(name) or 0


def _kept(newest_first: Iterable[Candidate]) -> set[str]:
    """The paths that retention spares for good, by the rule of the newest that has one."""
    whole = [each for each in newest_first if each.manifest is not None]
    every = whole[0].manifest.keep_every if whole and whole[0].manifest else 0
    first: dict[int, str] = {}
    for each in reversed(whole) if every > 0 else ():
        first.setdefault(each.step // every, each.path)
    return set(first.values())


def _listed(found: Candidate, kept: set[str]) -> ListedCheckpoint:
    manifest, problem = found.manifest, found.problem
    state: ListedState = "complete"
    if problem is not None:
        state = "unreadable" if problem.kind == "unreadable" else "damaged"
    return ListedCheckpoint(
        name=os.path.basename(found.path),
        path=found.path,
        state=state,
        step=found.step,
        bytes=_bytes(found.path, manifest),
        saved_at=manifest.saved_at if manifest else 0.0,
        world_size=manifest.world_size if manifest else 0,
        kind=manifest.kind if manifest else "",
        imported=manifest.imported if manifest else "",
        kept=found.path in kept,
        in_use=reader_lock.in_use(found.path),
        why=str(problem or ""),
    )


def _bytes(path: str, manifest: Manifest | None) -> int:
    return sum(entry.size for entry in manifest.files) if manifest else _size_of(path)


def _set_aside(folder: str) -> list[ListedCheckpoint]:
    try:
        names = [] if os.path.islink(folder) else sorted(os.listdir(folder), reverse=True)
    except OSError:
        return []
    return [
        _other(path, "set aside", step_of(name) or 0, why=_why(path))
        for name in names
        if os.path.isdir(path := os.path.join(folder, name)) and not os.path.islink(path)
    ]


def _why(path: str) -> str:
    try:
        fd = os.open(os.path.join(path, WHY), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            return file.read(1000).decode(errors="replace").strip()
    except OSError:
        return ""


def _other(path: str, state: ListedState, step: int, why: str = "") -> ListedCheckpoint:
    return ListedCheckpoint(
        name=os.path.basename(path), path=path, state=state, step=step, bytes=_size_of(path),
        saved_at=_changed(path), why=why,
    )  # fmt: skip


def _changed(path: str) -> float:
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _size_of(folder: str) -> int:
    try:
        with os.scandir(folder) as entries:
            found = [entry.stat(follow_symlinks=False) for entry in entries]
    except OSError:  # being removed at this moment
        return 0
    return sum(each.st_size for each in found if stat.S_ISREG(each.st_mode))
