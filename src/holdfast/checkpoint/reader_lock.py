"""A checkpoint that is being read is not removed: a shared lock on its manifest.

    with hold(step_folder):            # any reader, also of a read-only disk; nothing is written
        ... read its files ...
    with claim(step_folder) as free:   # retention: `free` is false while anybody reads it
        ... remove it ...
    in_use(step_folder)                # to say so

The kernel drops the lock with its owner, and NFS carries it to other machines, where a folder's
own lock would stay on this one. Where a file system has no locks a reader leaves a small file in
the folder instead, which counts for a day.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator

from holdfast.analysis.checkpoints.manifest import MANIFEST

LEASE = ".reader-"
LEASE_SECONDS = 86400.0
_NO_LOCKS_HERE = (errno.ENOLCK, errno.ENOTSUP, errno.EINVAL, errno.ENOSYS)


@contextlib.contextmanager
def hold(folder: str) -> Iterator[None]:
    """While the block runs, no holdfast removes this checkpoint.

    Raises FileNotFoundError when it is gone, or just being removed; other OSErrors as `open` does.
    """
    fd = _open(folder, os.O_RDONLY)
    lease = ""
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _removed(folder) from None
        except OSError as problem:
            if problem.errno not in _NO_LOCKS_HERE:
                raise
            lease = _leave_lease(folder)
        if not _is_still_there(folder, fd):
            raise _removed(folder)
        yield
    finally:
        os.close(fd)
        if lease:
            with contextlib.suppress(OSError):
                os.unlink(lease)


@contextlib.contextmanager
def claim(folder: str) -> Iterator[bool]:
    """For retention: true when no reader holds it, and none begins to meanwhile.

    True as well where there is no manifest: such a folder is no checkpoint to be read.
    """
    try:
        fd = _open(folder, os.O_RDWR)  # NFS wants it open for writing
    except PermissionError:
        fd = _open(folder, os.O_RDONLY)
    except OSError as problem:
        if problem.errno not in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EISDIR):
            raise
        yield not _leases(folder)
        return
    try:
        yield _take(fd) and not _leases(folder)
    finally:
        os.close(fd)


def in_use(folder: str) -> bool:
    """Whether a reader holds it now; false when there is nothing to read."""
    try:
        with claim(folder) as free:
            return not free
    except OSError:
        return False


def is_lease(name: str) -> bool:
    return name.startswith(LEASE)


def _open(folder: str, flags: int) -> int:
    """A manifest that is a pipe or a device must not hold us up."""
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(os.path.join(folder, MANIFEST), flags)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "not a file", os.path.join(folder, MANIFEST))


def _take(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as problem:
        # EBADF: NFS, and no permission to write. Then no other lock can be seen either.
        if problem.errno not in (*_NO_LOCKS_HERE, errno.EBADF):
            raise
    return True


def _is_still_there(folder: str, fd: int) -> bool:
    """Between opening and locking it may have been removed."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.stat(os.path.join(folder, MANIFEST)), os.fstat(fd))
    return False


def _removed(folder: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "removed by the job that writes there", folder)


def _leave_lease(folder: str) -> str:
    """'' on a read-only disk, where nothing is removed from here either."""
    path = os.path.join(folder, f"{LEASE}{secrets.token_hex(4)}")
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    except OSError:
        return ""
    return path


def _leases(folder: str) -> bool:
    """Of readers that are likely to live: the file of a killed one is an old file."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if is_lease(entry.name):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                if age < LEASE_SECONDS:
                    return True
    return False
