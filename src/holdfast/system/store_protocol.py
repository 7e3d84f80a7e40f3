"""Ask a listener whether it is a TCPStore of torch, without touching what the store holds.

torch/csrc/distributed/c10d/TCPStoreBackend.hpp: a client opens with VALIDATE and a magic
number (no answer), PING echoes a number, GETNUMKEYS answers with an int64. Both backends
(libuv and the older poll loop) speak it alike, in the machine's own byte order.
"""

from __future__ import annotations

import secrets
import socket
import struct

from holdfast.analysis.machine import StoreAnswer, Unread

VALIDATE, GETNUMKEYS, PING = 0, 7, 13
MAGIC = 0x3C85F7CE

LINE_END = b"\r\n\r\n"
"""the first number to echo: a server that waits for a line (HTTP…) has one and complains"""

QUIET = 0.2
"""seconds we wait for each answer; a store on this machine needs less than a millisecond"""


def ask_store(address: str, port: int) -> StoreAnswer | Unread:
    """Silence is no answer: a store whose process is stopped is silent too."""
    nonce = secrets.token_bytes(4)
    opening = struct.pack("=BI", VALIDATE, MAGIC) + bytes([PING]) + LINE_END + bytes([PING]) + nonce
    try:
        with socket.create_connection((address, port), timeout=QUIET) as client:
            client.sendall(opening)
            if _receive(client, 8) != LINE_END + nonce:
                return StoreAnswer(is_store=False, keys=None)
            return StoreAnswer(is_store=True, keys=_count_keys(client))
    except TimeoutError:
        return Unread(why=f"the listener on port {port} said nothing within {QUIET:g} s")
    except (ConnectionResetError, BrokenPipeError):  # it did not like what we said
        return StoreAnswer(is_store=False, keys=None)
    except OSError as problem:
        return Unread(why=f"the listener on port {port} could not be asked: {problem}")


def _count_keys(client: socket.socket) -> int | None:
    try:
        client.sendall(bytes([GETNUMKEYS]))
        answer = _receive(client, 8)
    except OSError:
        return None
    return int(struct.unpack("=q", answer)[0]) if len(answer) == 8 else None


def _receive(client: socket.socket, count: int) -> bytes:
    """Up to `count` bytes; fewer when the other side hangs up."""
    received = b""
    while len(received) < count and (chunk := client.recv(count - len(received))):
        received += chunk
    return received
