"""The coordinator's sockets for datagrams: one at each own address that a launcher has reached.

One for all addresses would answer from another address than was asked, where a machine has several.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from holdfast.run.nodes.link.beat import SIZE

Came = tuple[socket.socket, tuple[Any, ...]]
"""the socket that got a datagram, and who sent it"""
AT_ONCE = 64
"""datagrams read before others have a turn: a flood leaves the loop to them"""


class BeatSockets:
    def __init__(self, take: Callable[[bytes, Came], None]) -> None:
        self._take = take
        self._bound: dict[str, socket.socket] = {}

    def listen_at(self, address: str, port: int) -> None:
        """Where the port is taken or forbidden there are no datagrams, and TCP has to do."""
        if address not in self._bound:
            with contextlib.suppress(OSError):
                bound = bound_socket(address, port)
                self._bound[address] = bound
                asyncio.get_running_loop().add_reader(bound, self._read, bound)

    def _read(self, bound: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                raw, sender = bound.recvfrom(SIZE + 1)
            except BlockingIOError:
                return
            except OSError:
                continue  # of an earlier datagram of ours
            self._take(raw, (bound, sender))

    def close(self) -> None:
        for bound in self._bound.values():
            asyncio.get_running_loop().remove_reader(bound)
            bound.close()


def bound_socket(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        made.bind((address, port))
    except OSError:
        made.close()
        raise
    return made
