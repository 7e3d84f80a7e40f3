"""One rank's share of one save, from its files to the answer; for the writer process, and for a
rank that has to write by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.analysis.checkpoints.manifest import RankPart
from holdfast.checkpoint import commit
from holdfast.checkpoint.commit import (
    AskedRoom,
    MadeRoom,
    Room,
    SaveControl,
    SaveError,
    SaveFolder,
)
from holdfast.checkpoint.files import DISK
from holdfast.checkpoint.messages import (
    PartWritten,
    SaveAnswer,
    SaveCommitted,
    SaveFailure,
    SaveOrder,
)


def carry_out(
    save: SaveOrder,
    names: Iterable[str],
    write: Callable[[SaveFolder, Room], RankPart],
    control: SaveControl,
) -> SaveAnswer:
    """`write` writes the files `names` of this rank; whatever goes wrong becomes the answer."""
    place = SaveFolder(save.folder, save.step, save.token)
    made = MadeRoom(DISK, place, save)
    try:
        if save.rank == 0:
            part = write(place, made)
            return SaveAnswer(committed=_finish(save, place, part, control, made))
        room = AskedRoom(DISK, place, save, control)

        def write_and_tell() -> RankPart:
            part = write(place, room)
            commit.hand_over(DISK, place, part)
            return part

        part = commit.with_room(room, write_and_tell)
        written = PartWritten(step=save.step, files=part.files, seconds=part.seconds)
        return SaveAnswer(written=written)
    except Exception as error:  # noqa: BLE001 - training continues, whatever happened here
        failed = _failure(save, error, made)
    if save.rank == 0:
        commit.abandon(DISK, place)
    else:
        commit.leave_failure(DISK, place, save.rank, names, failed)
    return SaveAnswer(failed=failed)


def _finish(
    save: SaveOrder, place: SaveFolder, part: RankPart, control: SaveControl, room: MadeRoom
) -> SaveCommitted:
    """Rank 0, once its own part is written: commit, then remove what is no longer kept."""
    path, manifest = commit.commit(DISK, place, part, save, control, room)
    problem = commit.retain(
        DISK,
        save.folder,
        keep=save.keep,
        keep_every=save.keep_every,
        newest=path,
        token=save.token,
    )
    return SaveCommitted(
        step=save.step,
        path=path,
        bytes=sum(entry.size for entry in manifest.files),
        stall=manifest.stall,
        seconds=manifest.seconds,
        not_removed=problem,
        made_room=tuple(room.removed),
    )


def _failure(save: SaveOrder, error: Exception, made: MadeRoom) -> SaveFailure:
    number, where = 0, save.folder
    if isinstance(error, SaveError):
        number, what, where = error.number, error.what, error.where
    elif isinstance(error, OSError):
        number = error.errno or 0
        what, where = error.strerror or str(error), str(error.filename or save.folder)
    else:
        what = f"{type(error).__name__}: {error}"
    return SaveFailure(
        step=save.step, errno=number, what=what, where=where, made_room=tuple(made.removed)
    )
