"""A rank's end of its writer: start it, hand it a save, hear the outcome, end it.

    writer = WriterProcess()                       # starts nothing yet
    writer.ask(Save(…), fds=(buffer_fd, lock_fd))  # starts it, or another one if it died
    answer = writer.answer(timeout=0)              # None: not yet
    writer.close()                                 # waits for the pending answer first

The writer inherits `fds` when it starts; a later `ask` that names other ones starts another writer.
Hand the descriptor of the folder's lock over as well: then the lock outlives a killed rank for as
long as its writer still touches the folder: it finishes the save.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import IO

import msgspec

import holdfast
from holdfast.checkpoint.files import DISK
from holdfast.checkpoint.messages import SaveAnswer, SaveFailure, SaveOrder, WriterRequest
from holdfast.checkpoint.parts import SaveFolder, leave_failure

# Isolated and without site: neither the user's folder, PYTHONPATH nor a .pth file is looked at, so
# nothing of theirs is imported, and it starts in half the time. Our two packages come last.
_PROGRAM = (
    "import sys; sys.path += sys.argv[1:]; "
    "from holdfast.checkpoint.writer import main; sys.exit(main())"
)


_LAST_CHUNK = 10.0
"""seconds for a writer that was told to end: one chunk on a slow disk, and the clearing up"""


class WriterProcess:
    def __init__(self) -> None:
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._fds: tuple[int, ...] = ()
        self._pending: SaveOrder | None = None
        self._text = b""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def busy(self) -> bool:
        """A save was asked for and its answer was not taken yet."""
        return self._pending is not None

    def ask(self, save: SaveOrder, fds: Sequence[int]) -> None:
        """Returns at once; one save at a time."""
        assert not self.busy, "the answer to the save before has not been taken"
        stdin, _ = self._running(tuple(fds))
        self._pending = save
        with contextlib.suppress(BrokenPipeError):  # it died: `answer` says so
            stdin.write(msgspec.json.encode(WriterRequest(save)) + b"\n")
            stdin.flush()

    def answer(self, timeout: float | None = 0.0) -> SaveAnswer | None:
        """The outcome of the pending save; None when it is not known yet, or nothing is pending.

        `timeout` None waits as long as it takes. A writer that died is an answer as well: the next
        `ask` starts another.
        """
        if self._pending is None:
            return None
        _, stdout = self._running(self._fds)
        deadline = None if timeout is None else time.monotonic() + timeout
        while b"\n" not in self._text:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([stdout], [], [], left)[0]:
                return None
            more = os.read(stdout.fileno(), 1 << 16)
            if not more:
                return self._died(self._pending)
            self._text += more
        line, _, self._text = self._text.partition(b"\n")
        self._pending = None
        return msgspec.json.decode(line, type=SaveAnswer)

    def close(self, timeout: float | None = None) -> SaveAnswer | None:
        """Wait for the pending answer, then end the writer; in a forked child it does nothing.

        When the time is over it is left to itself: it finishes the save alone, or gives it up
        (writer.py), and ends.
        """
        if os.getpid() != self._owner or self._process is None:
            return None
        last = self.answer(timeout)
        if self.busy:
            self._leave()
        else:
            self._end()
        return last

    def _leave(self) -> None:
        assert self._process
        process, self._process, self._pending, self._text = self._process, None, None, b""
        _close_pipes(process)
        process.returncode = 0  # not ours to wait for any more: no warning about it

    def _running(self, fds: tuple[int, ...]) -> tuple[IO[bytes], IO[bytes]]:
        if (
            not self.busy
            and self._process
            and (self._fds != fds or self._process.poll() is not None)
        ):
            self._end()
        if self._process is None:
            homes = {os.path.dirname(os.path.dirname(os.path.abspath(module.__file__ or "")))
                     for module in (holdfast, msgspec)}  # fmt: skip
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, *sorted(homes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=fds,
            )
            self._fds = fds
        assert self._process.stdin
        assert self._process.stdout
        return self._process.stdin, self._process.stdout

    def _died(self, save: SaveOrder) -> SaveAnswer:
        code = self._end()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        what = f"the process that writes {how}"
        failed = SaveFailure(step=save.step, errno=0, what=what, where=save.folder)
        if save.rank != 0:  # rank 0 clears its own away at the next save
            place = SaveFolder(save.folder, save.step, save.token)
            leave_failure(DISK, place, save.rank, (), failed)
        return SaveAnswer(failed=failed)

    def _end(self) -> int:
        assert self._process
        process, self._process, self._pending, self._text = self._process, None, None, b""
        _close_pipes(process)
        try:
            return process.wait(_LAST_CHUNK)
        except (
            subprocess.TimeoutExpired
        ):  # a disk that does not answer: not worth holding up an end
            process.kill()
            return -signal.SIGKILL


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(BrokenPipeError):
            assert pipe
            pipe.close()
