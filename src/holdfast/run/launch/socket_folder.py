"""A folder on a local disk for what ranks serve and write: their sockets, words and events.

The run's own folder is often on a file server, which may hang, and its name may be too long: that
of a socket has 108 bytes at most. A writer copies from here to there (runs/folder_writer.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.errors import EnvironmentFailure
from holdfast.system.filesystem import REMOTE

_NAME = re.compile(r"holdfast-\d+-\w+")
_LOCK = "lock"
LONGEST = 107 - len("/holdfast-4194304-abcdefgh/9999.sock")
"""bytes that the folder around it may have in its name"""
YOUNG = 60.0
"""seconds in which a folder without a lock may belong to a launcher that is just starting"""
OTHER_PLACES = ("/tmp", "/dev/shm", "/var/tmp")  # noqa: S108 - mkdtemp makes ours private


class LocalFolder:
    """Ours alone, and locked as long as this launcher or its writer lives."""

    def __init__(self) -> None:
        where = _place()
        sweep(where)
        self.path = tempfile.mkdtemp(prefix=f"holdfast-{os.getpid()}-", dir=where)
        self.paths = RunPaths(*os.path.split(self.path))
        """as in the run's own folder"""
        new = os.path.join(self.path, f"{_LOCK}.new")
        self.lock = os.open(new, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(new, os.path.join(self.path, _LOCK))  # no sweep ever finds it unlocked

    def socket(self, local_rank: int) -> str:
        return os.path.join(self.path, f"{local_rank}.sock")

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def sweep(where: str) -> None:
    """Remove our own folders whose launcher is gone. Only a lock tells: the pid of a launcher in
    another container, with the same /tmp, means nothing here."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(where):
            if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                ours = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
                if ours and _is_abandoned(entry.path):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _is_abandoned(folder: str) -> bool:
    try:
        descriptor = os.open(os.path.join(folder, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - os.stat(folder).st_mtime > YOUNG
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # its launcher lives
        return False
    finally:
        os.close(descriptor)
    return True


def _place() -> str:
    """The user's TMPDIR, unless its name is too long, or it is on a file server."""
    try:
        own = [tempfile.gettempdir()]
    except FileNotFoundError:
        own = []
    kinds = _file_systems()
    for folder in (*own, *OTHER_PLACES):
        short = len(os.fsencode(folder)) <= LONGEST
        if short and os.access(folder, os.W_OK | os.X_OK) and _kind(folder, kinds) not in REMOTE:
            return folder
    if not own:
        raise EnvironmentFailure(
            f"no folder for temporary files can be written: neither {', '.join(OTHER_PLACES)} nor "
            f"{os.getcwd()}",
            hint="name one that can: `TMPDIR=DIR holdfast run …`",
        )
    return own[0]


def _file_systems() -> dict[str, str]:
    """Mount point -> type; the last mount on a point is the one that is seen."""
    with contextlib.suppress(OSError):
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
        return {line[1]: line[2] for line in lines if len(line) > 2}
    return {}


def _kind(folder: str, kinds: dict[str, str]) -> str:
    path = os.path.abspath(folder)
    while path not in kinds and path != "/":
        path = os.path.dirname(path)
    return kinds.get(path, "")
