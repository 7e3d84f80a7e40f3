"""One log of one rank: whole at both ends, and never larger than the disk can bear."""

from __future__ import annotations

import contextlib
import os

LOG_LIMIT = 64 << 20
"""a log that grows past this starts a new file; the first part and the one before are kept"""


class LogFile:
    """One log, appended to and never overwritten, of at most three times the limit."""

    def __init__(self, path: str, *, limit: int = LOG_LIMIT) -> None:
        self.path = path
        self._limit = limit
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by its stream
        self._size = self._file.tell()

    def write(self, text: bytes) -> None:
        if self._size >= self._limit:
            self._turn_over()
        self._size += len(text)
        while text:
            text = text[self._file.write(text) :]

    def _turn_over(self) -> None:
        """The start says how the job was set up, the end why it died; the middle goes."""
        self._file.close()
        base, ending = os.path.splitext(self.path)
        first = f"{base}.first{ending}"
        os.replace(self.path, f"{base}.previous{ending}" if os.path.exists(first) else first)
        self._file = open(self.path, "ab", buffering=0)  # noqa: SIM115
        self._size = 0

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._file.close()
