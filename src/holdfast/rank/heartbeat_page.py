"""A rank's page in shared memory: what it says of itself, readable without its help.

The launcher makes one page per rank (`create`); the rank maps it and writes numbers with single
aligned stores (`HeartbeatPage`); the launcher reads them (`read`) also when the rank is stopped,
holds the GIL or is dead. Times are nanoseconds of CLOCK_MONOTONIC, which all processes share.

The writing side uses the standard library only: it runs inside any Python that runs a rank.

    byte    0  magic     8  version   16  pid (written last: 0 means 'never written')
           24  flags    32  steps     40  step_at   48  usual_step   56  beat_at
           64  group_timeout           72  group_left_at       80  leaving_at
           88  members: whether any process that it started has a page of its own
          256  phase: a slot, its number is 1 + the rank that this one waits for, 0 for none
         1024  limit: a slot, its number is when the limit runs out
         2048  claim: a slot, its number is when init_process_group was entered, its text the
               other fields of `Claim` (analysis/scene) as JSON, and "destroyed" when its group is
         3680  exit: a slot, its number is when the script last asked to end this process, its text
               the other fields of `ExitCall` as JSON
"""

from __future__ import annotations

import binascii
import contextlib
import fcntl
import functools
import mmap
import os
import struct
import time
from typing import TYPE_CHECKING

from holdfast.system import proc
from holdfast.system.kernel_calls import memory_file, seal_size

if TYPE_CHECKING:
    from holdfast.analysis.scene.scene import Beat, Claim, ExitCall

SIZE = 4096
MEMBERS = 64
"""pages behind that of the rank, for processes that it starts and that form a group of their own,
by their number in it; an unused page takes no memory"""
VERSION = 1
_MAGIC = int.from_bytes(b"HOLDFAST", "little")
_TORCH, _GROUP, _CAPTURING, _GRAPHS = 1, 2, 4, 8  # flags

# Indices into the page seen as 8-byte words.
_AT_MAGIC, _AT_VERSION, _AT_PID, _AT_FLAGS = 0, 1, 2, 3
_AT_STEPS, _AT_STEP, _AT_USUAL, _AT_BEAT, _AT_TIMEOUT = 4, 5, 6, 7, 8
_AT_GROUP_LEFT, _AT_LEAVING, _AT_MEMBERS = 9, 10, 11

_PHASE, _LIMIT, _CLAIM, _EXIT = 256, 1024, 2048, 3680
_SLOT = struct.Struct("<IIQ")  # checksum, length of the text, a number
_LONGEST_TEXT = 400
_LONGEST_CLAIM = 1600
_TRIES = 50

_NANO = 1e-9

Buffer = mmap.mmap | memoryview


def create() -> tuple[int, mmap.mmap]:
    """An empty page, and the descriptor that a rank opens by `path_of`.

    A memfd has no name in any file system: nothing is left behind however we end. It is
    sealed against a change of size, because a shrunken page would kill its reader by SIGBUS.
    """
    fd = memory_file("holdfast-page", sealable=True)
    try:
        os.ftruncate(fd, SIZE * (1 + MEMBERS))
        seal_size(fd)
        return fd, mmap.mmap(fd, SIZE * (1 + MEMBERS))
    except BaseException:
        os.close(fd)
        raise


def path_of(descriptor: int) -> str:
    """By which a rank opens the page of its launcher, this process: by the number that /proc gives
    it, which in a sandbox may be another than its own."""
    return f"/proc/{proc.own_number() or os.getpid()}/fd/{descriptor}"


def attach(path: str) -> mmap.mmap:
    """The rank's mapping of the page that its launcher made."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return mmap.mmap(fd, SIZE)
    finally:
        os.close(fd)


def attach_unclaimed(path: str) -> mmap.mmap | None:
    """The same where the rank is a shell or another wrapper: the first process below it that asks
    gets the page, and the next one when that has ended."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        with contextlib.suppress(BlockingIOError):  # another process takes it at this moment
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            buffer = mmap.mmap(fd, SIZE)
            owner = writer(buffer)
            if not owner or not os.path.exists(f"/proc/{owner}"):
                HeartbeatPage(buffer).announce(os.getpid())
                return buffer
        return None
    finally:
        os.close(fd)


def attach_member(path: str, number: int) -> memoryview | None:
    """The page for that number of a group that the rank's own children form; None for more than we
    have pages for. The rank's own page says that there are any."""
    if not 0 <= number < MEMBERS:
        return None
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        # As a whole: where a page of memory is larger than ours, no other offset can be mapped.
        whole = memoryview(mmap.mmap(fd, SIZE * (1 + MEMBERS)))
    finally:
        os.close(fd)
    whole[:SIZE].cast("Q")[_AT_MEMBERS] = 1
    return whole[SIZE * (1 + number) : SIZE * (2 + number)]


class HeartbeatPage:
    """The rank's side: setters, each a few stores and no system call."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._words = memoryview(buffer).cast("Q")

    def announce(self, pid: int) -> None:
        """This process is the rank; whatever an earlier one left is cleared."""
        self._words[_AT_PID] = 0
        self._buffer[24:SIZE] = bytes(SIZE - 24)
        self._words[_AT_MAGIC] = _MAGIC
        self._words[_AT_VERSION] = VERSION
        self._words[_AT_PID] = pid

    def torch_imported(self) -> None:
        self._words[_AT_FLAGS] |= _TORCH

    def group(self, *, ready: bool, timeout: float) -> None:
        self._words[_AT_TIMEOUT] = _nanoseconds(timeout)
        self._words[_AT_GROUP_LEFT] = 0 if ready else time.monotonic_ns()
        flags = self._words[_AT_FLAGS]
        self._words[_AT_FLAGS] = flags | _GROUP if ready else flags & ~_GROUP

    def cuda_graph(self, *, capturing: bool) -> None:
        """It captures one, or has captured one."""
        flags = self._words[_AT_FLAGS] | _GRAPHS
        self._words[_AT_FLAGS] = flags | _CAPTURING if capturing else flags & ~_CAPTURING

    def beat(self) -> None:
        self._words[_AT_BEAT] = time.monotonic_ns()

    def step(self, steps: int, at: int, usual: int) -> None:
        """`at` and `usual` in nanoseconds. The count last: a reader that sees it sees its time."""
        self._words[_AT_USUAL] = usual
        self._words[_AT_STEP] = at
        self._words[_AT_STEPS] = steps

    def phase(self, name: str, waits_for: int | None = None) -> None:
        """What the script does, and the rank that this one waits for, if any."""
        self._put(_PHASE, 0 if waits_for is None else waits_for + 1, name)

    def limit(self, name: str, until: float) -> None:
        self._put(_LIMIT, _nanoseconds(until), name)

    def claim(self, text: str, at: float) -> None:
        """What this rank says it is, as JSON."""
        self._put(_CLAIM, _nanoseconds(at), text, longest=_LONGEST_CLAIM)

    def exit_called(self, text: str, at: float) -> None:
        """The script asks to end this process; it may still catch what that raises."""
        self._put(_EXIT, _nanoseconds(at), text)

    def leaving(self) -> None:
        """Python is being shut down: from here on nothing of the script can prevent the end."""
        if not self._words[_AT_LEAVING]:
            self._words[_AT_LEAVING] = time.monotonic_ns()

    def _put(self, slot: int, number: int, text: str, *, longest: int = _LONGEST_TEXT) -> None:
        body = text.encode("utf-8", "replace")[:longest]
        head = _SLOT.pack(_checksum(number, body), len(body), number)
        self._buffer[slot : slot + _SLOT.size + len(body)] = head + body


def members(buffer: Buffer) -> dict[int, memoryview]:
    """The pages that processes started by the rank have taken, by their number in their group."""
    whole = memoryview(buffer)
    if not whole[:SIZE].cast("Q")[_AT_MEMBERS]:
        return {}
    pages = {n: whole[SIZE * (1 + n) : SIZE * (2 + n)] for n in range(MEMBERS)}
    return {number: page for number, page in pages.items() if writer(page)}


def writer(buffer: Buffer) -> int:
    """The process that writes this page; 0 for none."""
    with memoryview(buffer) as raw, raw[:SIZE].cast("Q") as words:
        return words[_AT_PID]


def read(buffer: Buffer) -> Beat | None:
    """What the rank says; None when it never said anything (no hook in it)."""
    from holdfast.analysis.scene.scene import Beat  # noqa: PLC0415 - needs msgspec, which a rank may lack

    with memoryview(buffer) as raw, raw[:SIZE].cast("Q") as words:
        said = list(words[: _AT_LEAVING + 1])
    if not said[_AT_PID] or said[_AT_MAGIC] != _MAGIC or said[_AT_VERSION] != VERSION:
        return None
    limit_name, limit_until = read_limit(buffer)
    waits_for, phase = _get(buffer, _PHASE)
    claim, destroyed = _read_claim(buffer)
    return Beat(
        torch_imported=bool(said[_AT_FLAGS] & _TORCH),
        group_ready=bool(said[_AT_FLAGS] & _GROUP),
        cuda_graphs=bool(said[_AT_FLAGS] & _GRAPHS),
        capturing=bool(said[_AT_FLAGS] & _CAPTURING),
        steps=said[_AT_STEPS],
        step_at=said[_AT_STEP] * _NANO,
        usual_step=said[_AT_USUAL] * _NANO,
        beat_at=said[_AT_BEAT] * _NANO,
        phase=phase,
        waits_for=waits_for - 1 if waits_for else None,
        limit_name=limit_name,
        limit_until=limit_until,
        group_timeout=said[_AT_TIMEOUT] * _NANO,
        claim=None if destroyed else claim,
        former_claim=claim if destroyed else None,
        group_left_at=said[_AT_GROUP_LEFT] * _NANO,
        leaving_at=said[_AT_LEAVING] * _NANO,
        exit_call=_read_exit_call(buffer),
    )


def read_limit(buffer: Buffer) -> tuple[str, float]:
    """The limit in force and when it runs out; ('', 0.0) for none."""
    until, name = _get(buffer, _LIMIT)
    return name, until * _NANO


def _read_claim(buffer: Buffer) -> tuple[Claim | None, bool]:
    """And whether its group has been destroyed."""
    at, text = _get(buffer, _CLAIM, longest=_LONGEST_CLAIM)
    return _claim_of(at, text) if text else (None, False)


@functools.lru_cache(maxsize=1024)
def _claim_of(at: int, text: str) -> tuple[Claim | None, bool]:
    """A claim stays the same for hours, and the launcher reads it ten times a second."""
    import msgspec  # noqa: PLC0415 - a rank may lack it

    from holdfast.analysis.scene.scene import Claim  # noqa: PLC0415

    try:
        said = msgspec.json.decode(text)
        destroyed = bool(said.pop("destroyed", False))
        return msgspec.convert({**said, "at": at * _NANO}, Claim), destroyed
    except (msgspec.MsgspecError, TypeError, AttributeError):
        return None, False  # cut short: nothing is known, and nothing is said


def _read_exit_call(buffer: Buffer) -> ExitCall | None:
    at, text = _get(buffer, _EXIT)
    return _exit_call_of(at, text) if text else None


@functools.lru_cache(maxsize=1024)
def _exit_call_of(at: int, text: str) -> ExitCall | None:
    import msgspec  # noqa: PLC0415 - a rank may lack it

    from holdfast.analysis.scene.scene import ExitCall  # noqa: PLC0415

    try:
        return msgspec.convert({**msgspec.json.decode(text), "at": at * _NANO}, ExitCall)
    except (msgspec.MsgspecError, TypeError):
        return None


def _get(buffer: Buffer, slot: int, *, longest: int = _LONGEST_TEXT) -> tuple[int, str]:
    """Number and text that belong together.

    The checksum reveals a torn read, on processors that reorder stores too. A rank stopped in
    the middle of its write never finishes it: then nothing is known, and nothing is said.
    """
    for _ in range(_TRIES):
        raw = bytes(buffer[slot : slot + _SLOT.size + longest])
        checksum, length, number = _SLOT.unpack_from(raw)
        body = raw[_SLOT.size : _SLOT.size + length]
        if len(body) == length and checksum == _checksum(number, body):
            return number, body.decode("utf-8", "ignore")
    return 0, ""


def _checksum(number: int, body: bytes) -> int:
    # An empty page is a valid one: no name, no number.
    return binascii.crc32(number.to_bytes(8, "little") + body) if number or body else 0


def _nanoseconds(seconds: float) -> int:
    return max(0, min(int(seconds * 1e9), 2**63 - 1))
