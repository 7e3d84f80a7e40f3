"""Files below a folder are made or written: inotify, folders made later included."""

from __future__ import annotations

import ctypes
import os
import select
import struct

_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_MODIFY, _CREATE, _ONLY_DIRECTORIES, _IS_DIRECTORY = 0x2, 0x100, 0x01000000, 0x40000000
_EVENT = struct.Struct("=iIII")


class FolderWatch:
    def __init__(self, folder: str) -> None:
        """Raises OSError where no watch can be had."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._folders: dict[int, str] = {}
        self._add(folder)

    def wait(self, timeout: float) -> bool:
        """Something was made or written."""
        readable, _, _ = select.select([self._fd], [], [], timeout)
        return bool(readable)

    def drain(self) -> None:
        """Forget what was seen; watch the folders that were made."""
        while self.wait(0):
            content = os.read(self._fd, 1 << 16)
            while content:
                watch, mask, _, length = _EVENT.unpack_from(content)
                name = content[_EVENT.size : _EVENT.size + length].rstrip(b"\0")
                if mask & _CREATE and mask & _IS_DIRECTORY:
                    self._add(os.path.join(self._folders.get(watch, ""), os.fsdecode(name)))
                content = content[_EVENT.size + length :]

    def close(self) -> None:
        os.close(self._fd)

    def _add(self, folder: str) -> None:
        """With all that is in it by now; one that is gone again is none."""
        wanted = _MODIFY | _CREATE | _ONLY_DIRECTORIES
        watch = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), wanted)
        if watch < 0:
            return
        self._folders[watch] = folder
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                self._add(entry.path)
