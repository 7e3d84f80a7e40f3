"""A checkpoint of ours, looked into from outside: its manifest, and the size of every file.

The digests are not computed: gigabytes do not fit into a second. `resume()` computes them.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import NamedTuple

import msgspec

from holdfast.analysis.checkpoints import manifest as manifests
from holdfast.analysis.checkpoints.manifest import MANIFEST, Manifest
from holdfast.analysis.machine import CheckpointItem


class Inspection(NamedTuple):
    manifest: Manifest | None
    problem: str
    size: int
    """bytes that are there"""
    unreadable: bool = False


def is_ours(folder: str) -> bool:
    """By its name, or, where it was renamed, by a manifest of ours."""
    if manifests.order_of(os.path.basename(folder)):
        return True
    try:
        with open(os.path.join(folder, MANIFEST), "rb") as file:
            first = file.read(200)
            return any(schema.encode() in first for schema in manifests.SCHEMAS)
    except OSError:
        return False


def look_into(folder: str) -> Inspection:
    """Raises OSError for what cannot be read."""
    try:
        with open(os.path.join(folder, MANIFEST), "rb") as file:
            manifest = manifests.decode(file.read())
    except FileNotFoundError:
        os.stat(folder)  # gone altogether: a running job has removed it meanwhile
        return Inspection(None, f"damaged: {MANIFEST} is missing", 0)
    except msgspec.DecodeError as error:
        return Inspection(None, f"damaged: {MANIFEST}: {error}", 0)
    if manifest.schema not in manifests.SCHEMAS:
        problem = f"cannot be read: it is of the kind {manifest.schema!r}"
        return Inspection(None, problem, 0, unreadable=True)
    problem, size = "", 0
    for entry in manifest.files:
        found = _size(folder, entry.name)
        size += max(found, 0)
        if found != entry.size and not problem:
            problem = _wrong(entry, found)
    return Inspection(manifest, problem, size)


def _size(folder: str, name: str) -> int:
    """-1 when it is not there."""
    if not manifests.is_file_name(name):
        return -1
    try:
        return os.lstat(os.path.join(folder, name)).st_size
    except FileNotFoundError:
        return -1


def _wrong(entry: manifests.FileEntry, found: int) -> str:
    if found < 0:
        return f"damaged: {entry.name} is missing"
    return f"damaged: {entry.name} has {found} bytes, its manifest says {entry.size}"


def item(folder: str, *, written: float) -> CheckpointItem:
    """Raises OSError, as `look_into` does."""
    manifest, problem, size, unreadable = look_into(folder)
    found = CheckpointItem(
        path=folder,
        kind="holdfast",
        size=size,
        age=max(0.0, time.time() - (manifest.saved_at if manifest else written)),
        problem=problem,
        unreadable=unreadable,
        step=manifests.step_of(os.path.basename(folder)),
    )
    if manifest is None:
        return found
    return msgspec.structs.replace(
        found,
        step=manifest.step,
        world_size=manifest.world_size,
        saved_at=manifest.saved_at,
        seconds=manifest.seconds,
        config=_config(manifest.config),
        data=manifest.data,
        files=len(manifest.files) + 1,
    )


def _config(config: dict[str, str]) -> str:
    """Short enough to compare two by eye."""
    if not config:
        return ""
    return hashlib.sha256(msgspec.json.encode(sorted(config.items()))).hexdigest()[:8]
