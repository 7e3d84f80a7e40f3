"""stage -> fsync -> manifest -> fsync -> rename -> fsync: a checkpoint exists whole or not at all.

The order is everything here, and each line of `commit` has its reason. All ranks write into one
temporary folder; every rank but 0 then leaves a Part there, which says what it wrote. Rank 0 waits
for the Parts, writes the manifest and gives the folder its name by one rename.

For the writer process, and for a rank that has to write by itself:

    make_root(DISK, root)                            # where something is put there before a save
    room = MadeRoom(DISK, place, save)               # every rank but 0: AskedRoom(…)
    part = write_part(DISK, place, rank, sources, stall=…, control=control, room=room)
    hand_over(DISK, place, part)                     # every rank but 0, or on failure:
    leave_failure(DISK, place, rank, names, failed)
    path, manifest = commit(DISK, place, part, save, control, room)  # rank 0, on failure: abandon
    problem = retain(DISK, root, keep=3, keep_every=None, newest=path, token=place.token)

`sweep(DISK, root)` removes what earlier saves left behind; only the holder of the lock may.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

import msgspec

from holdfast.analysis.checkpoints.manifest import (
    MANIFEST,
    SCHEMA,
    FileEntry,
    Manifest,
    RankPart,
    encode,
    folder_name,
    order_of,
)
from holdfast.checkpoint.files import Files
from holdfast.checkpoint.full_disk import AskedRoom, MadeRoom, Room, is_note, with_room
from holdfast.checkpoint.lock import token_in
from holdfast.checkpoint.messages import SaveOrder
from holdfast.checkpoint.parts import (
    SaveControl,
    SaveError,
    SaveFolder,
    check_sizes,
    gather,
    hand_over,
    leave_failure,
    part_name,
    write_whole,
)
from holdfast.checkpoint.pieces import FileSource, write_pieces
from holdfast.checkpoint.removal import clear, sweep
from holdfast.checkpoint.retention import retain
from holdfast.checkpoint.sign_of_life import SignOfLife, is_sign

__all__ = [
    "AskedRoom",
    "FileSource",
    "MadeRoom",
    "Room",
    "SaveControl",
    "SaveError",
    "SaveFolder",
    "abandon",
    "commit",
    "hand_over",
    "leave_failure",
    "make_root",
    "retain",
    "sweep",
    "with_room",
    "write_part",
]


def make_root(files: Files, root: str) -> None:
    """With every missing parent, each name safe on the disk: os.makedirs leaves that open."""
    parent = os.path.dirname(root)
    if files.exists(root):
        return
    if parent != root:
        make_root(files, parent)
    if files.make_folder(root):
        try:
            files.fsync_folder(parent)
        except OSError:  # the next save would find it there, and not know that it is not safe
            files.remove_folder(root)
            raise


def write_part(
    files: Files,
    place: SaveFolder,
    rank: int,
    sources: Iterable[FileSource],
    *,
    stall: float,
    control: SaveControl,
    room: Room,
) -> RankPart:
    """This rank's files, on the disk when it returns."""
    began = control.clock()

    def make_place() -> None:
        make_root(files, place.root)
        files.make_folder(place.temporary)

    def write_all() -> tuple[FileEntry, ...]:
        written = tuple(_write_file(files, place, source, moving) for source in ready)
        files.fsync_folder(place.temporary)
        return written

    with_room(room, make_place)
    # Only now, as this may fail: with the folder there, a failure can be reported to rank 0.
    ready = list(sources)
    with SignOfLife(files, place.temporary, rank) as alive:
        moving = msgspec.structs.replace(control, check_wanted=alive.noting(control.check_wanted))
        entries = with_room(room, write_all)
    return RankPart(rank=rank, files=entries, stall=stall, seconds=control.clock() - began)


def commit(
    files: Files,
    place: SaveFolder,
    own: RankPart,
    save: SaveOrder,
    control: SaveControl,
    room: MadeRoom,
) -> tuple[str, Manifest]:
    """Rank 0, after `write_part`: (path, manifest) once nothing can undo it any more."""
    began = control.clock() - own.seconds
    parts = gather(files, place, own, save, control, room.answer)
    check_sizes(files, place, parts)
    manifest = Manifest(
        schema=SCHEMA,
        step=save.step,
        world_size=save.world_size,
        saved_at=control.wall(),
        files=tuple(entry for part in parts for entry in part.files),
        keep_every=save.keep_every or 0,
        stall=max(part.stall for part in parts),
        seconds=control.clock() - began,
        **msgspec.structs.asdict(save.about),
    )
    target = os.path.join(place.temporary, MANIFEST)
    with_room(room, lambda: write_whole(files, target, encode(manifest)))
    for name in _notes(files.listdir(place.temporary), parts):
        files.remove(os.path.join(place.temporary, name))
    # The names inside must be safe before the folder's own name says that they are there.
    files.fsync_folder(place.temporary)
    _refuse_if_taken_over(place, save)
    control.check_wanted()  # after this line the save is a fact
    path = os.path.join(place.root, _free_name(files, place))
    files.rename(place.temporary, path)
    files.fsync_folder(place.root)
    return path, manifest


def _refuse_if_taken_over(place: SaveFolder, save: SaveOrder) -> None:
    """A machine that was cut off from its NFS server loses the lock without hearing of it."""
    owner = token_in(place.root) if save.owner else ""
    if owner not in ("", save.owner):
        raise SaveError("another start of the job has taken over the folder", place.root)


def abandon(files: Files, place: SaveFolder) -> None:
    """Rank 0 gives up: by a rename first, so that the other ranks see it at their next chunk."""
    dead = f"{place.temporary}dead"
    with contextlib.suppress(OSError):
        files.rename(place.temporary, dead)
    for path in (dead, place.temporary):
        with contextlib.suppress(OSError):
            clear(files, path)


def _notes(names: Iterable[str], parts: Iterable[RankPart]) -> list[str]:
    """What the ranks told each other during this save."""
    handed_over = {part_name(part.rank) for part in parts}
    return [name for name in names if name in handed_over or is_note(name) or is_sign(name)]


def _write_file(
    files: Files, place: SaveFolder, source: FileSource, control: SaveControl
) -> FileEntry:
    file = files.create(os.path.join(place.temporary, source.name))
    try:
        sha256 = write_pieces(file, source, control)
        file.fsync()
    finally:
        file.close()
    return FileEntry(
        name=source.name, size=source.size, piece_size=control.piece_size, sha256=sha256
    )


def _free_name(files: Files, place: SaveFolder) -> str:
    """A committed folder is never replaced: between two renames there would be none."""
    orders = (order_of(name) for name in files.listdir(place.root))
    taken = [order[1] for order in orders if order and order[0] == place.step]
    return folder_name(place.step, max(taken, default=0) + 1)
