"""How a folder of ours is removed: only what is provably ours, and nothing through a link.

    note = remove_checkpoint(DISK, root, name, token, owners(DISK, root))
    swept = sweep(DISK, root)          # temporary folders of saves that ended
    clear(DISK, temporary)             # one of them

Ours are the files that the manifest names, and the names that only holdfast gives. Anything else in
a checkpoint (a tensorboard folder, notes, an evaluation) is the user's: when the checkpoint goes,
it stays in `step-000001200-other-files`, a name that is never taken for a checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection

import msgspec

from holdfast.analysis.checkpoints.manifest import (
    MANIFEST,
    decode,
    is_file_name,
    step_of_temporary,
)
from holdfast.checkpoint.files import Files, read
from holdfast.text import plural

OTHER_FILES = "-other-files"
_OURS = re.compile(
    r"rank-[0-9]+\.(?:safetensors|json|part\.json|failed\.json)(?:\.new)?"
    r"|manifest\.json|\.reader-[0-9a-f]+|rank-[0-9]+\.full-[0-9]+-[0-9]+|room-[0-9]+|\.alive-[0-9]+"
)
_TEMPORARY = re.compile(r"\.tmp-(step-[0-9.]+)-[0-9a-f]+")


def owners(files: Files, root: str, newest: str = "") -> set[int]:
    """Users whose folders are this job's: ours, and as whom the disk knows us (a server may give
    root's files to user 65534)."""
    return {os.geteuid(), files.owner(root), *([files.owner(newest)] if newest else [])}


def remove_checkpoint(
    files: Files, root: str, name: str, token: str, allowed: Collection[int]
) -> str:
    """'' when it is gone, or never was ours; else why it, or something of it, is still there."""
    path = os.path.join(root, name)
    if not files.is_folder(path):
        return ""
    if files.owner(path) not in allowed:
        return f"{name} belongs to another user"
    with files.claim(path) as free:
        if not free:
            return f"{name} is being read"
        ours, others = _sort_out(files, path)
        if others and not ours:
            return ""
        dead = os.path.join(root, f".tmp-{name}-{token}")
        files.rename(path, dead)
        # Else a crash could bring the name back over a folder that is half empty.
        files.fsync_folder(root)
        try:
            _remove_first(files, dead, ours)
        except OSError:  # not ours to remove in after all: then it stays whole
            files.rename(dead, path)
            raise
        return clear(files, dead)


def sweep(files: Files, root: str, *, spare: str = "") -> list[str]:
    """Remove the temporary folders of saves that ended, but for the token `spare`."""
    swept: list[str] = []
    if not files.exists(root):
        return swept
    allowed = owners(files, root)
    for name in files.folders(root):
        if step_of_temporary(name) is None or (spare and name.endswith(f"-{spare}")):
            continue
        path = os.path.join(root, name)
        with contextlib.suppress(OSError):
            if files.owner(path) in allowed:
                clear(files, path)
                swept.append(name)
    return swept


def clear(files: Files, path: str) -> str:
    """Remove a temporary folder; '' or where that which is not ours in it is now."""
    if not files.is_folder(path):
        return ""
    ours, others = _sort_out(files, path)
    for name in ours:
        with contextlib.suppress(FileNotFoundError):  # swept by another rank as well
            files.remove(os.path.join(path, name))
    if not others:
        with contextlib.suppress(FileNotFoundError):
            files.remove_folder(path)
        return ""
    root, name = os.path.split(path)
    found = _TEMPORARY.fullmatch(name)
    aside = free_name(files, os.path.join(root, (found[1] if found else name[1:]) + OTHER_FILES))
    files.rename(path, aside)
    what = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
    stay = plural(others, "stays", "stay")
    return f"{what} {stay} in {os.path.basename(aside)}: not written by holdfast"


def free_name(files: Files, path: str) -> str:
    count, target = 1, path
    while files.exists(target):
        count += 1
        target = f"{path}.{count}"
    return target


def _sort_out(files: Files, path: str) -> tuple[list[str], list[str]]:
    """(ours, others) in this folder; the manifest first: without it the rest is nothing."""
    known, folders = _listed(files, path), set(files.folders(path))
    ours: list[str] = []
    others: list[str] = []
    for name in files.listdir(path):
        is_ours = name not in folders and (name in known or _OURS.fullmatch(name))
        (ours if is_ours else others).append(name)
    return sorted(ours, key=lambda name: name != MANIFEST), others


def _listed(files: Files, path: str) -> set[str]:
    """The names in its manifest; none where that cannot be read."""
    try:
        manifest = decode(read(files, os.path.join(path, MANIFEST)))
    except (OSError, msgspec.DecodeError):
        return set()
    return {entry.name for entry in manifest.files if is_file_name(entry.name)}


def _remove_first(files: Files, path: str, names: list[str]) -> None:
    for name in names[:1]:
        with contextlib.suppress(FileNotFoundError):
            files.remove(os.path.join(path, name))
