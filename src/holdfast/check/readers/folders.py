"""The folders a job writes into: room, kind of file system, and one real write."""

from __future__ import annotations

import errno
import os

from holdfast.analysis.machine import Folder, Plan
from holdfast.system.filesystem import filesystem_at

WRITE = 1 << 20
"""bytes we really write (into a file without a name, gone when closed)"""

# Network and FUSE file systems answer so to O_TMPFILE; EISDIR comes from those that know
# the flag only as the O_DIRECTORY it contains.
_NO_UNNAMED_FILES = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOSYS})


def read_folders(plan: Plan) -> tuple[Folder, ...]:
    wanted = [(path, "checkpoints") for path in plan.checkpoint_folders]
    wanted += [(plan.log_folder, "logs")] if plan.log_folder else []
    return tuple(_read(path, purpose) for path, purpose in wanted)


def absolute(named: str) -> str:
    try:
        return os.path.abspath(os.path.expanduser(named))
    except FileNotFoundError as problem:
        raise OSError(f"{named}: the current folder does not exist any more") from problem


def _read(named: str, purpose: str) -> Folder:
    path = absolute(named)
    looked_at, obstacle = _nearest(path)
    room = os.statvfs(looked_at)
    filesystem = filesystem_at(looked_at)
    is_directory = os.path.isdir(looked_at)
    read_only = bool(room.f_flag & os.ST_RDONLY)
    write_error = obstacle or (
        _try_writing(looked_at, read_only=read_only) if is_directory else "ENOTDIR"
    )
    return Folder(
        path=path,
        purpose=purpose,
        exists=looked_at == path,
        looked_at=looked_at,
        is_directory=is_directory,
        filesystem=filesystem,
        read_only=read_only,
        size=room.f_blocks * room.f_frsize,
        # Without the blocks reserved for root: a job should not count on those.
        free=room.f_bavail * room.f_frsize,
        # Some file systems make inodes as needed and count none: both stay 0 there.
        inodes=room.f_files,
        inodes_free=room.f_favail if room.f_files else 0,
        write_error=write_error,
    )


def _nearest(path: str) -> tuple[str, str]:
    """The folder or its nearest existing parent, and what else than absence was in the way.

    Through a link to nothing no folder can be made: mkdir(2) says EEXIST.
    """
    obstacle = ""
    while error := _error_of_stat(path):
        if error != "ENOENT":
            obstacle = error
        elif os.path.islink(path):
            obstacle = "EEXIST"
        path = os.path.dirname(path)
    return path, obstacle


def _error_of_stat(path: str) -> str:
    try:
        os.stat(path)
    except OSError as problem:
        return _name(problem)
    return ""


def _try_writing(folder: str, *, read_only: bool) -> str:
    """'' when this user can fill a file here, else the errno's name."""
    try:
        handle = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        if problem.errno not in _NO_UNNAMED_FILES:
            return _name(problem)
        # A file with a name could stay behind if we were killed now: only ask.
        if os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            return ""
        return "EROFS" if read_only else "EACCES"
    error = ""
    try:
        # Random bytes, because some file systems compress zeros away.
        left = memoryview(os.urandom(WRITE))
        while left:
            left = left[os.write(handle, left) :]
    except OSError as problem:
        error = _name(problem)
    try:
        os.close(handle)
    except OSError as problem:  # delayed writes (quota on a network disk) fail here
        error = error or _name(problem)
    return error


def _name(problem: OSError) -> str:
    return errno.errorcode.get(problem.errno or 0, str(problem.errno))
