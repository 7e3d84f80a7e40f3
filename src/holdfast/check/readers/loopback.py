"""Does loopback carry TCP? Really listen, connect and exchange a byte each way."""

from __future__ import annotations

import errno
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

from holdfast.analysis.machine import Plan, Reach
from holdfast.system.sockets import error_name, family_of

ADDRESSES = ("127.0.0.1", "::1")
SECONDS = 0.5
HANG_UP_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER with 0 s: no TIME_WAIT of ours stays behind on a port that a job may want"""


def read_loopback(plan: Plan) -> tuple[Reach, ...]:  # noqa: ARG001 - handed to every reader
    """Both families at once: two silences in a row would outlast the reader's deadline."""
    with ThreadPoolExecutor(len(ADDRESSES)) as pool:
        return tuple(pool.map(_talk, ADDRESSES))


def _talk(address: str) -> Reach:
    start = time.monotonic()
    port = 0
    error = ""
    try:
        with socket.socket(family_of(address), socket.SOCK_STREAM) as server:
            server.settimeout(SECONDS)
            server.bind((address, 0))
            server.listen(1)
            port = server.getsockname()[1]
            _exchange(server)
    except OSError as problem:
        error = error_name(problem)
    return Reach(address=address, port=port, error=error, seconds=time.monotonic() - start)


def _exchange(server: socket.socket) -> None:
    """Each step has the whole deadline: on a starved machine a step may start late, yet what
    has arrived meanwhile still counts, so that slowness is never taken for a firewall."""
    with socket.socket(server.family, socket.SOCK_STREAM) as client:
        client.settimeout(SECONDS)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, HANG_UP_AT_ONCE)
        client.connect(server.getsockname())
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(SECONDS)
            for sender, receiver in ((client, accepted), (accepted, client)):
                sender.sendall(b"?")
                if receiver.recv(1) != b"?":
                    raise ConnectionResetError(errno.ECONNRESET, "the byte did not arrive")
