"""Carries packets from one port of the hub to another after a delay: what the netem queue does in
kernels that have it."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque

from holdfast.drill.lab.namespaces import inside_network

ALL_PROTOCOLS = 0x0003
PACKET_OUTGOING = 4


class Relay:
    """One direction. It takes the frames for `mac`; a rule of the hub keeps the bridge from
    passing them as well. Broadcasts go by the bridge, without delay."""

    def __init__(self, hub: int, ports: tuple[str, str], mac: str, seconds: float) -> None:
        self._mac = bytes.fromhex(mac.replace(":", ""))
        self._seconds = seconds
        with inside_network(hub):
            self._from, self._to = (_port(name) for name in ports)
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._carry, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.close()
        self._thread.join()
        for opened in (self._from, self._to, self._stopped):
            opened.close()

    def _carry(self) -> None:
        waiting: deque[tuple[float, bytes]] = deque()
        while True:
            wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
            ready, _, _ = select.select([self._from, self._stopped], [], [], wait)
            if self._stopped in ready:
                return
            if ready:
                frame, (_, _, kind, *_) = self._from.recvfrom(65535)
                if kind != PACKET_OUTGOING and frame.startswith(self._mac):
                    waiting.append((time.monotonic() + self._seconds, frame))
            while waiting and waiting[0][0] <= time.monotonic():
                with contextlib.suppress(OSError):  # the receiver is cut off or full: a loss
                    self._to.send(waiting.popleft()[1])


def _port(name: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PROTOCOLS))
    port.bind((name, ALL_PROTOCOLS))
    port.setblocking(False)
    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
    return port
