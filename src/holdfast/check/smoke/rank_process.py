"""One rank's process, and the ends of its pipes that are ours."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import IO

from holdfast.check.smoke.stages import WORDS_KEPT, Record
from holdfast.redaction import redact

PR_SET_PDEATHSIG = 1
"""linux/prctl.h"""


BEGIN = (
    "import sys; sys.path[:] = filter(None, sys.path); "
    "from holdfast.check.smoke.rank import main; sys.exit(main())"
)
"""Not `-m`, which would also import from the current folder: a `random.py` or a checkout of
torch there is of no concern to a job started by `torchrun elsewhere/train.py`."""


class RankProcess:
    """A started rank; its maker must `kill` and `close` it."""

    def __init__(self, rank: int, environment: Mapping[str, str], begin: str = BEGIN) -> None:
        self.rank = rank
        self.stage = "start"
        """what it was last told to do"""
        self.reported = b""
        """the beginning of a report whose end has not come yet"""
        self.printed = b""
        self.unfinished_line = b""
        self.nccl_said: set[object] = set()
        """what NCCL printed of its links and diagnostics, each once"""
        self.gone = False
        """its exit has been seen and reported"""
        self.reports, theirs = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", begin, str(theirs)],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(theirs,),
                # Its own session: Ctrl-C at the terminal is ours alone to handle.
                start_new_session=True,
                preexec_fn=_die_with_parent(),  # noqa: PLW1509 - no threads run here
            )
        except BaseException:
            os.close(self.reports)
            raise
        finally:
            os.close(theirs)

    @property
    def output(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def input(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def tell(self, word: str) -> None:
        """The word to begin a stage."""
        self.stage = word
        # A rank that is gone cannot be told; its exit is seen elsewhere.
        with contextlib.suppress(BrokenPipeError):
            os.write(self.input.fileno(), word.encode() + b"\n")

    def state(self) -> str:
        """The kernel's letter for what it does: 'R', 'S', 'D', 'T'…; '' when it is gone."""
        with contextlib.suppress(OSError), open(f"/proc/{self.process.pid}/stat") as stat:
            # The command name before it may hold spaces and brackets: count from the last one.
            return stat.read().rpartition(")")[2].split()[0]
        return ""

    def exit_record(self) -> Record:
        """How it ended, with the end of what it printed, less torch's C++ frames and NCCL's
        progress."""
        lines = self.printed.decode(errors="replace").splitlines()
        kept = [
            line
            for line in lines
            if line.strip() and not line.startswith("frame #") and " NCCL INFO " not in line
        ]
        return Record(
            rank=self.rank,
            kind="exit",
            stage=self.stage,
            pid=self.process.pid,
            code=self.process.returncode or 0,
            text=redact("\n".join(kept)[-WORDS_KEPT:]),
        )

    def kill(self) -> None:
        """The process and what it may have started itself: its session is one group."""
        # As long as it has not been waited for, its pid cannot belong to another process.
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Bury it. One that is stuck in the kernel is left behind rather than waited for."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=2)
        with contextlib.suppress(BrokenPipeError):
            self.input.close()
        self.output.close()
        os.close(self.reports)


def _die_with_parent() -> Callable[[], None]:
    """Runs between fork and exec: the kernel kills the rank when this process is gone.

    Set here, not in rank.py, so that it also holds for a rank that never gets that far.
    The C library is loaded before the fork: afterwards another thread may hold its locks.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def ask_the_kernel() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # we died before we could ask
            os._exit(1)

    return ask_the_kernel
