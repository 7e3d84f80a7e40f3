"""Stands between a launcher and its coordinator on loopback, and breaks their connections."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

RESET = struct.pack("ii", 1, 0)


class BreakingProxy:
    """TCP only: datagrams do not get through."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self.connections = 0
        self.most_bytes: int | None = None
        """of one direction of a connection, which then breaks"""
        threading.Thread(target=self._accept, daemon=True).start()

    def break_all(self) -> None:
        """With a reset, both ways."""
        opened, self._open = self._open, []
        for one in opened:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                one.shutdown(socket.SHUT_RD)
            one.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.break_all()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self._open += [near, far]
                self.connections += 1
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        left = self.most_bytes
        with contextlib.suppress(OSError):
            while more := source.recv(65536):
                if left is not None:
                    more, left = more[:left], left - len(more)
                target.sendall(more)
                if left is not None and left <= 0:
                    break
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def breaking(port: int) -> Iterator[BreakingProxy]:
    proxy = BreakingProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
