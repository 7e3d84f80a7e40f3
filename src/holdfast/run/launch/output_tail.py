"""The end of what each rank printed on stderr, in memory: its log may be on a disk that hangs."""

from __future__ import annotations

import threading

TAIL = 64 * 1024
"""bytes of a rank's stderr in which its last words are looked for"""


class OutputTails:
    """Filled by the thread that carries the output, read by the one that watches."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tails: dict[int, bytearray] = {}
        self._files: dict[int, str] = {}

    def forget(self) -> None:
        """A new attempt begins."""
        with self._lock:
            self._tails, self._files = {}, {}

    def add(self, rank: int, text: bytes) -> None:
        with self._lock:
            tail = self._tails.setdefault(rank, bytearray())
            tail += text[-TAIL:]
            if len(tail) > 2 * TAIL:
                del tail[:-TAIL]

    def of(self, rank: int) -> bytes:
        with self._lock:
            return bytes(self._tails.get(rank, b"")[-TAIL:])

    def keep_file(self, rank: int, path: str) -> None:
        """Where the whole of it is written to."""
        with self._lock:
            self._files[rank] = path

    def file(self, rank: int) -> str:
        """'' when it is not kept, or not by us."""
        with self._lock:
            return self._files.get(rank, "")
