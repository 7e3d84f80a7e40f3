"""How the ranks of one save hear of each other: small notes in the temporary folder.

Files and not the job's store: the one who waits is the writer of rank 0, a process without torch,
and that a file of rank 5 can be seen from rank 0 is just what has to be known before a commit.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable

import msgspec

from holdfast.analysis.checkpoints.manifest import PIECE_SIZE, RankPart, temporary_name
from holdfast.checkpoint.files import Files, read
from holdfast.checkpoint.messages import SaveFailure, SaveOrder
from holdfast.text import plural, ranks

ALONE_PATIENCE = 5.0
"""seconds without a sign from a rank whose part is missing, once rank 0 is gone: those that write
give one every 2 s (sign_of_life.py), and the next attempt waits"""


class SaveError(Exception):
    """The save cannot continue, for a reason other than a failed system call of our own."""

    def __init__(self, what: str, where: str, number: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.number = number


class SaveFolder(msgspec.Struct, frozen=True):
    """Where one save is written."""

    root: str
    step: int
    token: str

    @property
    def temporary(self) -> str:
        return os.path.join(self.root, temporary_name(self.step, self.token))


def _always_wanted() -> None:
    pass


class SaveControl(msgspec.Struct, frozen=True):
    """The clock, and whether this save is still wanted."""

    check_wanted: Callable[[], None] = _always_wanted
    """called between chunks and while waiting; raises SaveError when it is to be given up"""
    left_alone: Callable[[], bool] = lambda: False
    """the rank is gone, and the save is finished without it"""
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    threads: int = 1
    """that hash and write the pieces of a file"""
    piece_size: int = PIECE_SIZE


def part_name(rank: int) -> str:
    return f"rank-{rank}.part.json"


def hand_over(files: Files, place: SaveFolder, part: RankPart) -> None:
    """Tell rank 0. Only to be seen whole, not to survive: a crash ends this save anyway."""
    _write_note(files, place, part_name(part.rank), msgspec.json.encode(part))


def leave_failure(
    files: Files, place: SaveFolder, rank: int, names: Iterable[str], failed: SaveFailure
) -> None:
    """Make room again, and spare rank 0 the waiting. Best effort: patience would tell it too."""
    for name in (*names, f"{part_name(rank)}.new"):
        with contextlib.suppress(OSError):
            files.remove(os.path.join(place.temporary, name))
    with contextlib.suppress(OSError):
        _write_note(files, place, _failure_name(rank), msgspec.json.encode(failed))


def gather(
    files: Files,
    place: SaveFolder,
    own: RankPart,
    save: SaveOrder,
    control: SaveControl,
    answer: Callable[[Iterable[str]], None],
) -> list[RankPart]:
    """The Parts of all ranks, own first; patience counts from the last sign of any of them.
    `answer` is given all names at each look: what other ranks ask for is among them."""
    parts = {own.rank: own}
    missing = set(range(save.world_size)) - {own.rank}
    seen: dict[str, int] = {}
    heard = control.clock()
    pause = 0.01
    while True:
        names = set(files.listdir(place.temporary))
        for rank in sorted(missing):
            if part := _part_of(files, place, rank, names):
                parts[rank] = part
        missing -= set(parts)
        if not missing:
            return [own, *(parts[rank] for rank in sorted(parts) if rank != own.rank)]
        control.check_wanted()
        answer(names)
        if (now := signs(files, place, names)) != seen:
            seen, heard = now, control.clock()
        elif control.clock() - heard > (ALONE_PATIENCE if control.left_alone() else save.patience):
            raise _missing_parts(place, missing)
        control.sleep(pause)
        pause = min(pause * 1.5, 0.25)


def check_sizes(files: Files, place: SaveFolder, parts: Iterable[RankPart]) -> None:
    """What rank 0 sees of each file, beside what its rank wrote."""
    for part in parts:
        for entry in part.files:
            path = os.path.join(place.temporary, entry.name)
            seen = files.size(path)
            if seen != entry.size:
                what = f"rank {part.rank} wrote {entry.size} bytes, rank 0 sees {seen}"
                raise SaveError(what, path)


def write_whole(files: Files, path: str, text: bytes) -> None:
    file = files.create(path)
    try:
        file.write(memoryview(text))
        file.fsync()
    finally:
        file.close()


def _failure_name(rank: int) -> str:
    return f"rank-{rank}.failed.json"


def _part_of(files: Files, place: SaveFolder, rank: int, names: set[str]) -> RankPart | None:
    if _failure_name(rank) in names:
        text = read(files, os.path.join(place.temporary, _failure_name(rank)))
        failed = msgspec.json.decode(text, type=SaveFailure)
        raise SaveError(f"rank {rank}: {failed.what}", failed.where, failed.errno)
    if part_name(rank) not in names:
        return None
    text = read(files, os.path.join(place.temporary, part_name(rank)))
    return msgspec.json.decode(text, type=RankPart)


def signs(files: Files, place: SaveFolder, names: Iterable[str]) -> dict[str, int]:
    """Changes while a rank still writes."""
    sizes = {}
    for name in names:
        with contextlib.suppress(OSError):  # a note that got its name meanwhile
            sizes[name] = files.size(os.path.join(place.temporary, name))
    return sizes


def _missing_parts(place: SaveFolder, missing: Iterable[int]) -> SaveError:
    what = (
        f"{ranks(missing)} did not write {plural(missing, 'its part', 'their parts')}: does every "
        f"rank call ckpt.step(), and is {place.root} on a file system that all machines share?"
    )
    return SaveError(what, place.root)


def _write_note(files: Files, place: SaveFolder, name: str, text: bytes) -> None:
    path = os.path.join(place.temporary, name)
    write_whole(files, f"{path}.new", text)
    files.rename(f"{path}.new", path)
