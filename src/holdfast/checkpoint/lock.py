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
import secrets
import shlex
import socket
import stat
import time
from collections.abc import Callable

from holdfast import text
from holdfast.checkpoint.abandoned_save import AbandonedSave
from holdfast.errors import EnvironmentFailure
from holdfast.rank.print_line import say
from holdfast.system.filesystem import REMOTE, filesystem_at

NAME = ".holdfast-lock"
PATIENCE = 10.0
"""seconds: the attempt before this one may still be dying"""
SERVER_PATIENCE = 150.0
"""seconds, where the owner was another machine: its death is known to the server only later"""
LOOK_AGAIN = 0.1
_NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)


class FolderLock:
    """Held by rank 0 from its first look into the folder to its end."""

    def __init__(self, folder: str) -> None:
        self.path = os.path.join(folder, NAME)
        self._fd = -1
        self.token = secrets.token_hex(8)
        """in the file while this job has the folder: other ranks see by it that it is the same"""
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
        fd = _open(self.path)
        try:
            self._wait(fd, patience, clock, sleep)
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps({**_owner(), "token": self.token}).encode(), 0)
            os.fsync(fd)  # else NFS keeps it here, for the file stays open
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        # A loader's worker shares the open file: it would keep the lock of a dead rank.
        os.register_at_fork(after_in_child=self._forget)

    def _wait(
        self,
        fd: int,
        patience: float | None,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        began, longest = clock(), -1.0
        save = AbandonedSave(os.path.dirname(self.path))
        while not self._try(fd):
            written = os.pread(fd, 4096, 0)
            if longest < 0:
                longest = self._patience(written) if patience is None else patience
            if save.is_being_finished(written):
                began = clock()
            if clock() >= began + longest:
                raise EnvironmentFailure(
                    f"another job writes checkpoints into {os.path.dirname(self.path)}: "
                    f"{_describe(os.pread(fd, 4096, 0))}",
                    hint=self._hint(longest),
                )
            sleep(LOOK_AGAIN)

    def _hint(self, waited: float) -> str:
        if waited < SERVER_PATIENCE:
            return "stop it, or give this job another folder"
        return (
            "stop it, or give this job another folder; if that machine is gone for good, free the "
            f"folder: rm {shlex.quote(self.path)}"
        )

    def _patience(self, written: bytes) -> float:
        """A server keeps the lock of a machine that died for its lease, 90 s as a rule."""
        folder = os.path.dirname(self.path)
        if filesystem_at(folder) not in REMOTE or _host(written) in ("", socket.gethostname()):
            return PATIENCE
        say(
            f"waiting up to {SERVER_PATIENCE:g} s for the lock of {folder}: {_describe(written)}; "
            "the file server keeps the lock of a lost machine for a while"
        )
        return SERVER_PATIENCE

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


def _open(path: str) -> int:
    """A link is not followed: what it leads to is not ours to write into."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(path, flags, 0o666)
    except OSError as problem:
        if problem.errno not in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise
    else:
        about = os.fstat(fd)
        if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
            return fd
        os.close(fd)
    raise EnvironmentFailure(
        f"{path} is a link or no file: holdfast did not write it, and does not touch it",
        hint=f"look at it, then remove it: rm {shlex.quote(path)}",
    )


def token_in(folder: str) -> str:
    """Of the job that has the folder, as this machine sees it; '' when there is none to be seen."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        fd = os.open(os.path.join(folder, NAME), flags)
    except OSError:
        return ""
    try:
        return str(_fields(os.read(fd, 4096)).get("token", ""))
    except OSError:
        return ""
    finally:
        os.close(fd)


def _fields(written: bytes) -> dict[str, object]:
    try:
        found = json.loads(written)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _host(written: bytes) -> str:
    return str(_fields(written).get("host", ""))


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
