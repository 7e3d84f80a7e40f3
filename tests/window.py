"""A real terminal whose window the test looks at and types into."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import termios
import tty
from collections.abc import Iterator

from tests.cli.holdfast_command import wait_until


class Window:
    """`far` is what programs hold; `got` is every byte they wrote, if the window is raw."""

    def __init__(self, *, raw: bool) -> None:
        self.near, self.far = pty.openpty()
        os.set_blocking(self.near, False)
        if raw:
            tty.setraw(self.far)
        self.got = b""

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def look(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self.near, 65536):
                self.got += piece
        return self.got

    def shows(self, wanted: bytes, *, seconds: float = 30) -> None:
        """The kernel passes it on piece by piece, a moment later."""
        wait_until(lambda: wanted in self.look(), seconds=seconds)

    def type(self, keys: bytes) -> None:
        os.write(self.near, keys)


@contextlib.contextmanager
def window(*, raw: bool = True, rows: int = 30, columns: int = 100) -> Iterator[Window]:
    made = Window(raw=raw)
    made.resize(rows, columns)
    try:
        yield made
    finally:
        os.close(made.near)
        os.close(made.far)
