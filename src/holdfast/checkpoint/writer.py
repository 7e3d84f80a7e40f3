"""The process that writes what a rank has staged. No torch: it starts in milliseconds.

Requests come on stdin, answers go to stdout, one JSON line each (messages.py); writer_process.py is
the rank's end. When its rank is gone (stdin closes, or a child of the rank still holds the pipe) it
finishes the save that it has, for all bytes are in its memory, and ends: within 10 minutes, or 5 s
after the last sign of a rank whose part is missing. Without the folder's lock it gives up at once.

It asks for its parent instead of taking a parent-death signal: that signal comes when the *thread*
that started it ends. SIGTERM and SIGINT are for the rank, which may just have asked for a last
save: the terminal and some schedulers send them to the whole group.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import select
import signal
import sys
import time
from collections.abc import Iterator

import msgspec

from holdfast.analysis.checkpoints.manifest import RankPart
from holdfast.checkpoint import commit, one_save
from holdfast.checkpoint.commit import Room, SaveControl, SaveError, SaveFolder
from holdfast.checkpoint.files import DISK
from holdfast.checkpoint.messages import FilePiece, SaveAnswer, SaveOrder, WriterRequest
from holdfast.system.proc import CHECKPOINT_WRITER

_POLL = 1.0
_NICE = 5
ALONE_SECONDS = 600.0
"""for a save whose rank is gone: the next attempt waits for it"""


class Parent:
    """The rank at the other end of stdin."""

    def __init__(self) -> None:
        self._pid = os.getppid()
        self._poll = select.poll()
        self._poll.register(0, 0)  # POLLHUP is always reported
        self._text = b""
        self._gone = False

    def gone(self) -> bool:
        """It ended, or has closed its end: what it asked for is finished, or given up, alone."""
        self._gone = self._gone or os.getppid() != self._pid or bool(self._poll.poll(0))
        return self._gone

    def requests(self) -> Iterator[WriterRequest]:
        while True:
            line, newline, rest = self._text.partition(b"\n")
            if newline:
                self._text = rest
                yield msgspec.json.decode(line, type=WriterRequest)
            elif select.select([0], [], [], _POLL)[0]:
                if not (more := os.read(0, 1 << 20)):
                    return
                self._text += more
            elif os.getppid() != self._pid:
                return

    def answer(self, answer: SaveAnswer) -> None:
        text = memoryview(msgspec.json.encode(answer) + b"\n")
        while text:
            text = text[os.write(1, text) :]


class SharedBuffers:
    """Views of the inherited buffers. Mapped once and kept: page tables of GBs take a while."""

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap] = {}

    def view(self, fd: int, offset: int, size: int) -> memoryview:
        there = os.fstat(fd).st_size
        if offset + size > there:  # reading on would be a SIGBUS
            raise SaveError(f"the buffer ends at {there}, asked for {offset}+{size}", "memory")
        known = self._maps.get(fd)
        if known is None or offset + size > len(known):
            known = self._maps[fd] = mmap.mmap(fd, there, prot=mmap.PROT_READ)
        return memoryview(known)[offset : offset + size]


class PieceSource:
    """A Piece as commit.py wants it."""

    def __init__(self, piece: FilePiece, mapping: SharedBuffers) -> None:
        self.name = piece.name
        self._view = (
            memoryview(piece.text.encode())
            if piece.fd < 0
            else mapping.view(piece.fd, piece.offset, piece.size)
        )
        self.size = len(self._view)

    def view(self, start: int, end: int) -> memoryview:
        return self._view[start:end]


def carry_out(save: SaveOrder, mapping: SharedBuffers, parent: Parent) -> SaveAnswer:
    """One save of one rank."""

    def write(place: SaveFolder, room: Room) -> RankPart:
        sources = (PieceSource(piece, mapping) for piece in save.pieces)
        return commit.write_part(
            DISK, place, save.rank, sources, stall=save.stall, control=control, room=room
        )

    control = _control(save, parent)
    return one_save.carry_out(save, [piece.name for piece in save.pieces], write, control)


def _control(save: SaveOrder, parent: Parent) -> SaveControl:
    place = SaveFolder(save.folder, save.step, save.token)
    alone_since: list[float] = []

    def check_wanted() -> None:
        if save.rank != 0 and not DISK.exists(place.temporary):
            raise SaveError("rank 0 gave up this save", place.temporary)
        if not parent.gone():
            return
        if not alone_since:
            alone_since.append(time.monotonic())
        if not _may_finish_alone(save) or time.monotonic() - alone_since[0] > ALONE_SECONDS:
            raise SaveError(f"rank {save.rank} exited", place.temporary)

    return SaveControl(check_wanted=check_wanted, left_alone=parent.gone, threads=save.threads)


def _may_finish_alone(save: SaveOrder) -> bool:
    """With the lock no other job comes into the folder. Rank 0's alone counts: without its writer
    no part becomes a checkpoint."""
    if save.rank != 0:
        return True
    try:
        fcntl.flock(save.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ours already: asks if it can be
    except (OSError, ValueError):
        return False
    return True


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write(CHECKPOINT_WRITER)
    os.nice(_NICE)  # training comes first where cores are short
    parent, mapping = Parent(), SharedBuffers()
    try:
        for request in parent.requests():
            parent.answer(carry_out(request.save, mapping, parent))
    except BrokenPipeError:  # the rank is gone
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
