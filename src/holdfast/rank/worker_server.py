"""torch's own worker server: answers `fr_trace_json` on a Unix socket, without the GIL."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from holdfast.system.kernel_calls import memory_file


class WorkerServer:
    def __init__(self, path: str) -> None:
        self.path = path
        self.pid = os.getpid()
        self._server: Any = None

    def move(self, path: str) -> None:
        """To another process: a child of the one it was made in."""
        self.path, self.pid, self._server = path, os.getpid(), None

    def start(self, torch: Any) -> None:
        """Once a process; torch says so on stderr, where it does not belong to the script."""
        if self._server is not None or not self.path or os.getpid() != self.pid:
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)  # of an earlier attempt: torch refuses a path that exists
        make = torch._C._distributed_c10d._WorkerServer  # noqa: SLF001
        with without_lines(b"WorkerServer.cpp"):
            self._server = make(self.path)

    def stop(self) -> None:
        """Before static data that its thread may use is destroyed."""
        if self._server is None or os.getpid() != self.pid:
            return
        with without_lines(b"WorkerServer.cpp"):
            self._server.shutdown()
            self._server = None  # its destructor has something to say as well
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


@contextlib.contextmanager
def without_lines(mark: bytes) -> Iterator[None]:
    """Keep lines with `mark` out of stderr for a moment, and lose no other line.

    C++ writes to descriptor 2 and its log level cannot be changed late, so the descriptor is
    another file meanwhile. What is not ours is written to the real one at the end.
    """
    try:
        real = os.dup(2)
    except OSError:  # the script closed its stderr
        yield
        return
    try:
        aside = memory_file("holdfast-stderr")
        try:
            os.dup2(aside, 2)
            try:
                yield
            finally:
                os.dup2(real, 2)
                size = os.lseek(aside, 0, os.SEEK_END)
                lines = os.pread(aside, size, 0).splitlines(keepends=True)
                if rest := b"".join(line for line in lines if mark not in line):
                    os.write(2, rest)
        finally:
            os.close(aside)
    finally:
        os.close(real)
