"""Each open() below a mount point waits until it is let go: fanotify's permission events.

Needs CAP_SYS_ADMIN. When the gate is closed, or this process ends, the kernel lets all go.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
from typing import NamedTuple

_CLASS_CONTENT, _CLOEXEC, _NONBLOCK = 0x4, 0x1, 0x2
_MARK_ADD, _MARK_MOUNT = 0x1, 0x10
_OPEN_PERM = 0x10000
_ALLOW = 1
_AT_FDCWD = -100
_EVENT = struct.Struct("=IBBHQii")
_RESPONSE = struct.Struct("=iI")


class Opening(NamedTuple):
    pid: int
    fd: int
    """ours, of the same file; closed by `let`"""


class OpenGate:
    def __init__(self, mount_point: str) -> None:
        """Raises OSError where the kernel or our rights do not allow it."""
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = _checked(
            libc.fanotify_init(_CLASS_CONTENT | _CLOEXEC | _NONBLOCK, os.O_RDONLY | os.O_CLOEXEC)
        )
        try:
            wanted = ctypes.c_uint64(_OPEN_PERM)
            place = os.fsencode(mount_point)
            _checked(
                libc.fanotify_mark(self._fd, _MARK_ADD | _MARK_MOUNT, wanted, _AT_FDCWD, place)
            )
        except OSError:
            os.close(self._fd)
            raise
        self._waiting: list[Opening] = []

    def next(self, timeout: float) -> Opening | None:
        """The next process that waits in open(); None: there was none in that time."""
        if not self._waiting:
            readable, _, _ = select.select([self._fd], [], [], timeout)
            self._waiting = _events(os.read(self._fd, 1 << 16)) if readable else []
        return self._waiting.pop(0) if self._waiting else None

    def let(self, opening: Opening) -> None:
        os.write(self._fd, _RESPONSE.pack(opening.fd, _ALLOW))
        os.close(opening.fd)

    def close(self) -> None:
        os.close(self._fd)
        for opening in self._waiting:
            os.close(opening.fd)


def _events(content: bytes) -> list[Opening]:
    found = []
    while content:
        length, _, _, _, _, fd, pid = _EVENT.unpack_from(content)
        found.append(Opening(pid, fd))
        content = content[length:]
    return found


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
