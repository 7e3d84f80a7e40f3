"""The newest checkpoints in the job's folders, and what is left of unfinished ones."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from holdfast.analysis.checkpoints.manifest import DAMAGED
from holdfast.analysis.machine import CheckpointItem, Plan, Unread
from holdfast.check.readers import holdfast_checkpoints
from holdfast.check.readers.folders import absolute
from holdfast.system import checkpoint_structure
from holdfast.system.filesystem import filesystem_at
from holdfast.system.holders import holders
from holdfast.text import duration

MOST_ITEMS = 20
MOST_ENTRIES = 2000
"""names looked at; a folder with more is no folder of checkpoints"""
OF_THE_KERNEL = frozenset({"proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "devpts"})
BUDGET = 0.4
"""seconds for looking into them, newest first"""
OLD = 600.0
"""seconds without a write after which a temporary belongs to no save in progress"""
JUST_CLOSED = 2.0
"""a temporary is closed an instant before it is renamed"""

_TEMPORARY = re.compile(r"\.tmp(\.|$)|^\.tmp-|\.incomplete$")
_TORCH_FILE = (".pt", ".pth", ".bin", ".ckpt", ".tar")
_PROBLEM_OF_FILE: dict[str, Callable[[str], str]] = {
    "torch-file": checkpoint_structure.problem_of_torch_file,
    "safetensors": checkpoint_structure.problem_of_safetensors,
}


class _Candidate(NamedTuple):
    written: float
    path: str
    kind: str
    size: int
    files: int


class _Cut(Exception):  # noqa: N818 - not an error: the look is over
    """A folder holds more than is looked at."""


def read_checkpoints(plan: Plan) -> tuple[CheckpointItem, ...] | Unread:
    """What was found is true even when the look was cut short; that nothing was found is not."""
    found: set[_Candidate] = set()
    unseen = ""
    for named in plan.checkpoint_folders:
        folder = absolute(named)
        if not os.path.isdir(folder):
            continue
        try:
            if (kind := filesystem_at(folder)) in OF_THE_KERNEL:
                unseen = f"{folder} is a window into the kernel ({kind}), and no disk"
                continue
            for candidate in _candidates(folder):
                found.add(candidate)
        except _Cut:
            unseen = f"{folder} holds over {MOST_ENTRIES} names: is it a folder of checkpoints?"
        except OSError as problem:
            unseen = f"{folder} cannot be listed: {problem.strerror}"
    newest = sorted(found, reverse=True)[:MOST_ITEMS]
    items, looked = _look_into_all(newest)
    if looked < len(newest):
        unseen = f"in {BUDGET:g} s only {looked} of {len(newest)} checkpoints could be looked into"
    if unseen and not any(item.problem for item in items):
        return Unread(why=unseen)
    return items


def _look_into_all(newest: list[_Candidate]) -> tuple[tuple[CheckpointItem, ...], int]:
    """The items, and how many candidates there was time for."""
    held = holders([c.path for c in newest if c.kind == "temporary"]).pids
    until = time.monotonic() + BUDGET
    items: list[CheckpointItem] = []
    for number, candidate in enumerate(newest):
        if time.monotonic() > until:
            return tuple(items), number
        item = _item(candidate, held=bool(held.get(candidate.path)))
        if item is not None:
            # A file name need not be text; what is reported must be.
            path = os.fsencode(item.path).decode(errors="replace")
            items.append(msgspec.structs.replace(item, path=path))
    return tuple(items), len(newest)


def _item(candidate: _Candidate, *, held: bool) -> CheckpointItem | None:
    """None when it is part of a save under way, or a running job removed it in the meantime."""
    age = max(0.0, time.time() - candidate.written)
    item = CheckpointItem(
        path=candidate.path,
        kind=candidate.kind,
        size=candidate.size,
        age=age,
        problem="",
        files=candidate.files,
    )
    try:
        if candidate.kind == "temporary":
            problem = _left_behind(age, held=held)
            return msgspec.structs.replace(item, problem=problem) if problem else None
        if candidate.kind == "holdfast":
            return holdfast_checkpoints.item(candidate.path, written=candidate.written)
        if candidate.kind == "dcp-folder":
            found = checkpoint_structure.problem_of_dcp_folder(candidate.path)
            changed = {"problem": found.words, "incomplete": found.incomplete}
            return msgspec.structs.replace(item, **changed)
        problem = _PROBLEM_OF_FILE[candidate.kind](candidate.path)
    except FileNotFoundError:
        return None
    except OSError as error:
        problem = f"cannot be read: {errno.errorcode.get(error.errno or 0, error.errno)}"
        return msgspec.structs.replace(item, problem=problem, unreadable=True)
    return msgspec.structs.replace(item, problem=problem)


def _candidates(folder: str) -> Iterator[_Candidate]:
    """The folder itself if it is one checkpoint, else what is in it, up to two levels deep."""
    with os.scandir(folder):
        pass  # the user named it: that it cannot be listed is not 'nothing in it'
    if whole := _as_checkpoint(folder):
        yield whole
        return
    seen = 0
    waiting = [(folder, 1)]
    while waiting:
        here, level = waiting.pop(0)
        for entry in _entries(here):
            seen += 1
            if seen > MOST_ENTRIES:
                raise _Cut
            is_folder = entry.is_dir(follow_symlinks=False)
            if _TEMPORARY.search(entry.name):
                inner = _entries(entry.path) if is_folder else []
                yield _candidate(entry.path, "temporary", [entry, *inner])
            elif is_folder and entry.name == DAMAGED:
                continue  # set aside by a resume, which said so
            elif is_folder and (whole := _as_checkpoint(entry.path)):
                yield whole
            elif is_folder and level < 2:
                waiting.append((entry.path, level + 1))
            elif (kind := _kind_of_file(entry.name)) and entry.is_file():
                yield _candidate(entry.path, kind, [entry])


def _as_checkpoint(folder: str) -> _Candidate | None:
    if holdfast_checkpoints.is_ours(folder):
        return _candidate(folder, "holdfast", _entries(folder))
    return _as_dcp(folder)


def _kind_of_file(name: str) -> str:
    if name.endswith(".safetensors"):
        return "safetensors"
    return "torch-file" if name.endswith(_TORCH_FILE) else ""


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """A folder this user may not read (lost+found) holds no checkpoint of this user's job."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (PermissionError, FileNotFoundError):
        return []


def _as_dcp(folder: str) -> _Candidate | None:
    """A folder of torch.distributed.checkpoint, finished or not."""
    parts = [e for e in _entries(folder) if e.name == ".metadata" or e.name.endswith(".distcp")]
    if not parts:
        return None
    return _candidate(folder, "dcp-folder", parts)


def _candidate(path: str, kind: str, parts: list[os.DirEntry[str]]) -> _Candidate:
    """A running job may rename or remove a part while we look; it then counts as just written."""
    written, size = 0.0, 0
    for part in parts:
        try:
            seen = part.stat(follow_symlinks=kind != "temporary")
        except FileNotFoundError:
            written = time.time()
            continue
        written = max(written, seen.st_mtime)
        size += seen.st_size
    return _Candidate(written, path, kind, size, len(parts))


def _left_behind(age: float, *, held: bool) -> str:
    """Why a temporary belongs to no save in progress; '' when it may."""
    if age < JUST_CLOSED or (held and age < OLD):
        return ""
    by_whom = (
        "although a process still holds it open" if held else "and no process here has it open"
    )
    return f"left behind by an unfinished save: last written {duration(age)} ago, {by_whom}"
