"""A save that finds the disk full: room is made for it, by rank 0 alone, and it is tried again.

    rank N   finds it full, removes what it has written, leaves rank-N.full-1-28 (round, errno)
    rank 0   sees that at its next look, makes room, leaves room-1; or gives the save up
    rank N   sees room-1, and writes again

First goes what dead saves left behind, then the oldest checkpoint that is whole, until as much is
free as one of them takes. Never the newest whole one, none that is being read, and none that
`keep_every_steps` keeps for good. These notes are empty files: on a full disk nothing else fits.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from holdfast.checkpoint.files import Files
from holdfast.checkpoint.messages import SaveOrder
from holdfast.checkpoint.parts import SaveControl, SaveError, SaveFolder, signs
from holdfast.checkpoint.removal import owners, sweep
from holdfast.checkpoint.retention import drop_oldest

FULL = (errno.ENOSPC, errno.EDQUOT)
_NOTE = re.compile(r"rank-([0-9]+)\.full-([0-9]+)-([0-9]+)")
_ANSWER = re.compile(r"room-[0-9]+")
_PAUSE = 0.1
_T = TypeVar("_T")


class Room(Protocol):
    """How a rank comes by room on a full disk."""

    def make(self, error: OSError) -> bool:
        """Whether it is worth trying again."""
        ...


def with_room(room: Room, write: Callable[[], _T]) -> _T:
    while True:
        try:
            return write()
        except OSError as error:  # noqa: PERF203 - a loop of one, mostly
            if error.errno not in FULL or not room.make(error):
                raise


def is_note(name: str) -> bool:
    return bool(_NOTE.fullmatch(name) or _ANSWER.fullmatch(name))


class MadeRoom:
    """Rank 0's: it makes room, for itself and for the ranks that ask."""

    def __init__(self, files: Files, place: SaveFolder, save: SaveOrder) -> None:
        self._files, self._place, self._save = files, place, save
        self._round = 0
        self._freed = 0
        self.removed: list[str] = []
        """checkpoints that had to go"""

    def make(self, error: OSError) -> bool:
        del error
        if not self._free_some():
            return False
        self._round += 1
        with contextlib.suppress(OSError):
            _touch(self._files, os.path.join(self._place.temporary, f"room-{self._round}"))
        return True

    def answer(self, names: Iterable[str]) -> None:
        """Those ranks that wait for room since the last was made; SaveError when there is none."""
        asking = [found for name in names if (found := _NOTE.fullmatch(name))]
        waiting = [found for found in asking if int(found[2]) > self._round]
        if not waiting:
            return
        number = int(waiting[0][3])
        why = os.strerror(number)
        if not self.make(OSError(number, why)):
            raise SaveError(f"rank {waiting[0][1]}: {why}", self._place.root, number)

    def _free_some(self) -> bool:
        if sweep(self._files, self._place.root, spare=self._place.token):
            return True
        dropped = drop_oldest(
            self._files,
            self._place.root,
            step=self._place.step,
            keep_every=self._save.keep_every,
            freed=self._freed,
            token=self._place.token,
            allowed=owners(self._files, self._place.root),
        )
        if dropped is None:
            return False
        self.removed.append(dropped.name)
        self._freed += dropped.size
        return True


class AskedRoom:
    """Of every other rank: it asks rank 0, and waits for the answer."""

    def __init__(
        self, files: Files, place: SaveFolder, save: SaveOrder, control: SaveControl
    ) -> None:
        self._files, self._place, self._save, self._control = files, place, save, control

    def make(self, error: OSError) -> bool:
        folder = self._place.temporary
        for piece in self._save.pieces:  # what is written so far is room as well
            with contextlib.suppress(OSError):
                self._files.remove(os.path.join(folder, piece.name))
        try:
            made = [name for name in self._files.listdir(folder) if _ANSWER.fullmatch(name)]
            next_round = len(made) + 1
            note = f"rank-{self._save.rank}.full-{next_round}-{error.errno}"
            _touch(self._files, os.path.join(folder, note))
            found = self._wait(f"room-{next_round}")
            self._files.remove(os.path.join(folder, note))
        except OSError:
            return False
        return found

    def _wait(self, answer: str) -> bool:
        """False when rank 0 gave no sign of life for as long as it would wait for one of ours."""
        control, seen = self._control, dict[str, int]()
        heard = control.clock()
        while True:
            control.check_wanted()
            names = self._files.listdir(self._place.temporary)
            if answer in names:
                return True
            if (now := signs(self._files, self._place, names)) != seen:
                seen, heard = now, control.clock()
            elif control.clock() - heard > self._save.patience:
                return False
            control.sleep(_PAUSE)


def _touch(files: Files, path: str) -> None:
    files.create(path).close()
