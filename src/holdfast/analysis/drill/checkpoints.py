"""Where a job saves its checkpoints, and which is which, from a listing of its folder: scripts and
trainers name them in many ways."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.analysis.checkpoints import manifest

Listing = Sequence[tuple[str, int, float]]
"""path below the folder, bytes, time of the last change; files only"""

SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".distcp", ".bin", ".tar", ".pkl", ".npz")
_NOT_OURS = frozenset({manifest.DAMAGED, "runs", "drills", "__pycache__", "wandb", "mlruns"})
_FOLDER = re.compile(
    r"(?:\.?tmp[-_.]?)?(?:global_?step|step|checkpoint|ckpt|iter(?:ation)?|epoch)s?[-_=]?\d.*", re.I
)
"""the folder of one checkpoint: 'checkpoint-20', 'global_step10', 'step-000000020.2'"""
_STEP = re.compile(r"(?:global_?step|step|checkpoint|ckpt|iter(?:ation)?)s?[-_=]?0*(\d+)", re.I)
_EPOCH = re.compile(r"epoch", re.I)
_NUMBER = re.compile(r"(?<![\d.])0*(\d+)(?![\d])")
_UNFINISHED = re.compile(
    r"\..*|tmp[-_.].*|.*[-_.](?:tmp|temp|partial|part|incomplete|unfinished)(?:[-_.].*)?", re.I
)
_PART = re.compile(
    r"(?:pytorch_)?model|weights|optim(?:izer)?|scheduler|scaler|trainer_state|training_args|ema|"
    r"(?:.*[-_])?(?:rng_states?|random_states?|rank|shard|part)[-_]?\d*|.*\d+-of-\d+",
    re.I,
)
"""one of several files that make a checkpoint together: 'optimizer.pt', 'rank-3.pt'"""


class ListedFile(NamedTuple):
    path: str
    size: int
    changed: float


class CheckpointEntry(NamedTuple):
    """One checkpoint: a file, or a folder with several."""

    path: str
    files: tuple[ListedFile, ...]
    """those that hold tensors"""
    number: int | None
    """the step in its name"""
    finished: bool

    @property
    def changed(self) -> float:
        return max(file.changed for file in self.files)

    @property
    def times(self) -> list[float]:
        """When it was written: once, or over and over."""
        return sorted({file.changed for file in self.files if file.path == self.largest})

    @property
    def largest(self) -> str:
        """The file in which damage hurts."""
        return max(self.files, key=lambda file: (file.size, file.path)).path


class CheckpointFolder(NamedTuple):
    path: str
    """below the listed folder; '' for that folder itself"""
    entries: tuple[CheckpointEntry, ...]
    """the oldest first"""
    others: tuple[str, ...] = ()
    """further folders that look like one: which of them counts is not certain"""

    @property
    def whole(self) -> tuple[CheckpointEntry, ...]:
        return tuple(entry for entry in self.entries if entry.finished)

    @property
    def newest(self) -> CheckpointEntry | None:
        return self.whole[-1] if self.whole else None


def folder(listing: Listing) -> str | None:
    """The folder that the job saves into; None where it saves nothing."""
    found = find(listing)
    return found.path if found else None


def find(listing: Listing) -> CheckpointFolder | None:
    """The folder with the most checkpoints; of several the one whose newest is the largest."""
    names = {path for path, _, _ in listing}
    grouped: dict[str, dict[str, list[ListedFile]]] = {}
    for listed in map(ListedFile._make, listing):
        if (place := _place(listed.path, names)) is not None:
            parent, entry = place
            grouped.setdefault(parent, {}).setdefault(entry, []).append(listed)
    folders = [
        CheckpointFolder(
            parent, _in_order(_entry(path, files, names) for path, files in entries.items())
        )
        for parent, entries in grouped.items()
    ]
    folders.sort(key=_weight, reverse=True)
    if not folders:
        return None
    others = tuple(sorted(one.path for one in folders[1:] if one.whole))
    return folders[0]._replace(others=others)


def _weight(one: CheckpointFolder) -> tuple[bool, bool, int, int, str]:
    numbered = any(entry.number is not None for entry in one.whole)
    sizes = [sum(file.size for file in entry.files) for entry in one.entries]
    return bool(one.whole), numbered, len(one.whole), max(sizes), one.path


def _place(path: str, names: set[str]) -> tuple[str, str] | None:
    """(folder of checkpoints, path of the checkpoint that the file belongs to); None for a file
    that is part of none."""
    parts = path.split("/")
    if _NOT_OURS & set(parts[:-1]) or not _holds_tensors(parts[-1]):
        return None
    for at, part in enumerate(parts[:-1]):
        if _FOLDER.fullmatch(part):
            return "/".join(parts[:at]), "/".join(parts[: at + 1])
        if part.startswith("."):
            return None
    inside = posixpath.dirname(path)
    if parts[-1].endswith(".distcp"):
        return (posixpath.dirname(inside), inside) if inside else ("", "")
    if _PART.fullmatch(_stem(parts[-1])) and _siblings(path, names):
        return inside, inside
    return inside, path


def _siblings(path: str, names: Iterable[str]) -> bool:
    """Other parts beside it: together they are one checkpoint, written over again and again."""
    inside = posixpath.dirname(path)
    return any(
        other != path
        and posixpath.dirname(other) == inside
        and _holds_tensors(posixpath.basename(other))
        and _PART.fullmatch(_stem(posixpath.basename(other)))
        for other in names
    )


def _holds_tensors(name: str) -> bool:
    bare = re.sub(
        r"[-_.](?:tmp|temp|partial|part|incomplete)(?:[-_.][\w]*)?$", "", name, flags=re.I
    )
    return name.endswith(SUFFIXES) or bare.endswith(SUFFIXES)


def _stem(name: str) -> str:
    return name.partition(".")[0]


def _entry(path: str, files: Sequence[ListedFile], names: set[str]) -> CheckpointEntry:
    return CheckpointEntry(
        path=path,
        files=tuple(sorted(files)),
        number=_number(posixpath.basename(path)),
        finished=_is_finished(path, files, names),
    )


def _is_finished(path: str, files: Sequence[ListedFile], names: set[str]) -> bool:
    name = posixpath.basename(path)
    if name and _UNFINISHED.fullmatch(name):
        return False
    if manifest.step_of(name) is not None and all(f.path.endswith(".safetensors") for f in files):
        return posixpath.join(path, manifest.MANIFEST) in names
    if any(file.path.endswith(".distcp") for file in files):
        return any(name.startswith(path) and name.endswith(".metadata") for name in names)
    return any(not _UNFINISHED.fullmatch(posixpath.basename(file.path)) for file in files)


def _number(name: str) -> int | None:
    """The step, where a name has one: 20 of 'epoch=1-step=20.ckpt', none of 'epoch-3.pt'."""
    if (order := manifest.order_of(name)) is not None:
        return order[0]
    if found := _STEP.search(name):
        return int(found[1])
    if _EPOCH.search(name):
        return None
    numbers = _NUMBER.findall(_stem(name))
    return int(numbers[-1]) if len(numbers) == 1 else None


def _in_order(entries: Iterable[CheckpointEntry]) -> tuple[CheckpointEntry, ...]:
    """By their times: a step that was reached again is newer than it was."""
    return tuple(sorted(entries, key=lambda one: (one.changed, one.number or 0, one.path)))
