"""The newest checkpoints in the job's folders, and what is left of unfinished ones."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.facts import CheckpointItem, Plan
from holdfast.machine.folders import absolute
from holdfast.probe import checkpoint_structure
from holdfast.probe.holders import holders
from holdfast.wording import span

MOST_ITEMS = 20
MOST_ENTRIES = 2000
"""names looked at; a folder with more is no folder of checkpoints"""
BUDGET = 0.4
"""seconds for looking into them, newest first"""
OLD = 600.0
"""seconds without a write after which a temporary belongs to no save in progress"""
JUST_CLOSED = 2.0
"""a temporary is closed an instant before it is renamed"""

_TEMPORARY = re.compile(r"\.tmp(\.|$)|^\.tmp-|\.incomplete$")
_TORCH_FILE = (".pt", ".pth", ".bin", ".ckpt", ".tar")
_LOOK: dict[str, Callable[[str], str]] = {
    "torch-file": checkpoint_structure.problem_of_torch_file,
    "safetensors": checkpoint_structure.problem_of_safetensors,
    "dcp-folder": checkpoint_structure.problem_of_dcp_folder,
}


class _Candidate(NamedTuple):
    written: float
    path: str
    kind: str
    size: int


def read_checkpoints(plan: Plan) -> tuple[CheckpointItem, ...]:
    found: set[_Candidate] = set()
    for named in plan.checkpoint_folders:
        folder = absolute(named)
        if os.path.isdir(folder):
            found.update(_candidates(folder))
    newest = sorted(found, reverse=True)[:MOST_ITEMS]
    temporaries = [c for c in newest if c.kind == "temporary"]
    held = holders([c.path for c in temporaries]).pids
    until = time.monotonic() + BUDGET
    items = []
    for candidate in newest:
        if time.monotonic() > until:
            break  # what we had no time for is not listed, rather than called whole
        age = max(0.0, time.time() - candidate.written)
        if candidate.kind == "temporary":
            problem = _left_behind(age, held=bool(held[candidate.path])) or None
        else:
            problem = _look_into(candidate)
        if problem is not None:
            items.append(
                CheckpointItem(
                    # A file name need not be text; what is reported must be.
                    path=os.fsencode(candidate.path).decode(errors="replace"),
                    kind=candidate.kind,
                    size=candidate.size,
                    age=age,
                    problem=problem,
                )
            )
    return tuple(items)


def _candidates(folder: str) -> Iterator[_Candidate]:
    """The folder itself if it is one sharded checkpoint, else what lies up to two levels deep."""
    if sharded := _as_dcp(folder):
        yield sharded
        return
    seen = 0
    waiting = [(folder, 1)]
    while waiting:
        here, level = waiting.pop(0)
        for entry in _entries(here):
            seen += 1
            if seen > MOST_ENTRIES:
                return
            is_folder = entry.is_dir(follow_symlinks=False)
            if _TEMPORARY.search(entry.name):
                inner = _entries(entry.path) if is_folder else []
                yield _candidate(entry.path, "temporary", [entry, *inner])
            elif is_folder and (sharded := _as_dcp(entry.path)):
                yield sharded
            elif is_folder and level < 2:
                waiting.append((entry.path, level + 1))
            elif (kind := _kind_of_file(entry.name)) and entry.is_file():
                yield _candidate(entry.path, kind, [entry])


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
    return _Candidate(written, path, kind, size)


def _left_behind(age: float, *, held: bool) -> str:
    """Why a temporary belongs to no save in progress; '' when it may."""
    if age < JUST_CLOSED or (held and age < OLD):
        return ""
    by_whom = (
        "although a process still holds it open" if held else "and no process here has it open"
    )
    return f"left behind by an unfinished save: last written {span(age)} ago, {by_whom}"


def _look_into(candidate: _Candidate) -> str | None:
    """None when a running job removed it in the meantime."""
    try:
        return _LOOK[candidate.kind](candidate.path)
    except FileNotFoundError:
        return None
    except OSError as problem:
        return f"cannot be read: {errno.errorcode.get(problem.errno or 0, problem.errno)}"
