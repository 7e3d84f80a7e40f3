"""One job writes into a folder: a lock that the kernel drops with its owner.

A second job in the same folder would take the first one's files for leftovers. The lock is a
flock on a file that says whose it is; NFS carries it to other machines as well.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable

from holdfast import text
from holdfast.errors import EnvironmentFailure

NAME = ".holdfast-lock"
PATIENCE = 10.0
"""seconds: the attempt before this one may still be dying"""
LOOK_AGAIN = 0.1
_NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)


class FolderLock:
    """Held by rank 0 from its first look into the folder to its end."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, NAME)
        self._fd = -1
        self.unsupported = ""
        """why this file system cannot keep two jobs apart; '' when it can"""

    @property
    def held(self) -> bool:
        return self._fd >= 0

    @property
    def fd(self) -> int:
        """For the writer: the lock lasts as long as any process has it open."""
        return self._fd

    def take(
        self,
        *,
        patience: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if self.held:
            return
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._wait(fd, clock() + (PATIENCE if patience is None else patience), clock, sleep)
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(_owner()).encode(), 0)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        # A loader's worker shares the open file: it would keep the lock of a dead rank.
        os.register_at_fork(after_in_child=self._forget)

    def _wait(
        self, fd: int, until: float, clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        while not self._try(fd):
            if clock() >= until:
                raise EnvironmentFailure(
                    f"another job writes checkpoints into {os.path.dirname(self.path)}: "
                    f"{_describe(os.pread(fd, 4096, 0))}",
                    hint="stop it, or give this job another folder",
                )
            sleep(LOOK_AGAIN)

    def _try(self, fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as problem:
            if problem.errno not in _NO_LOCKS_HERE:
                raise
            self.unsupported = os.strerror(problem.errno or 0)
        return True

    def release(self) -> None:
        """The file stays: removed, it could be locked twice, by its old and its new inode."""
        if self.held:
            os.close(self._fd)
            self._fd = -1

    def _forget(self) -> None:
        with contextlib.suppress(OSError):
            self.release()


def _owner() -> dict[str, object]:
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "run": os.environ.get("TORCHELASTIC_RUN_ID", ""),
        "since": time.time(),
    }


def _describe(written: bytes) -> str:
    """The owner, from what it wrote; a lock whose owner cannot be read still counts as held."""
    try:
        owner = json.loads(written)
        run = f", run {owner['run']}" if owner["run"] else ""
        ago = text.duration(max(0.0, time.time() - float(owner["since"])))
        return f"pid {int(owner['pid'])} on {owner['host']}{run}, for {ago}"
    except (ValueError, KeyError, TypeError):
        return f"an unknown process holds its lock ({NAME})"
