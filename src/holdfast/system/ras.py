"""Ask NCCL's RAS about a running job, over the socket that each of its processes listens on.

All processes of a job on one machine listen on one port (SO_REUSEPORT): the kernel picks the one
that gets a connection, also where that one is stopped and will never answer. So several connections
are tried, one after another, and the first that is greeted is used. What is asked only reads: no
`CONTROL` command is ever sent.

The protocol is text, from src/ras/{client,client_support}.cc of NVIDIA/nccl: `CLIENT PROTOCOL 2` is
answered by `SERVER PROTOCOL 2`, a setting by `OK` or `ERROR: …`; the answer to `VERBOSE STATUS`
ends with the connection.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import time
from collections.abc import Iterator
from typing import Any

from holdfast.analysis.machine import Unread
from holdfast.analysis.ras.address import LOCALHOST, RasAddress

GREETING = b"CLIENT PROTOCOL 2\n"
GREETED = b"SERVER PROTOCOL "
LARGEST = 64 << 20
LONGEST_LINE = 4096
STAGGER = 0.15
"""seconds before another connection is tried beside those that are not greeted yet"""
MOST_CONNECTIONS = 16

NOTHING_LISTENS = (
    "nothing listens there: NCCL is older than 2.24, has no communicator yet, or runs with "
    "NCCL_RAS_ENABLE=0"
)
TOO_OLD = (
    "its NCCL is older than 2.28.7, whose RAS may crash the job when it is asked while a "
    "communicator is being made (NVIDIA/nccl#1669, #2346)"
)
_Place = tuple[int, Any]


class _NoRasAnswerError(Exception):
    """Why there is no answer, in a user's words."""


class _RasHungUpError(_NoRasAnswerError):
    """Before it said anything: another process on the same port may."""


def status(address: RasAddress, *, seconds: float, patience: int = 0) -> bytes | Unread | None:
    """Its status as JSON; None where nothing listens.

    Text is not asked for: before 2.27.3 RAS may crash its process while a communicator is made
    (NVIDIA/nccl#1669), and up to 2.32 at least when it formats one as text that is not ready
    (NVIDIA/nccl#2346). JSON is formatted without that step, and is there since 2.28.7.

    `patience`: whole seconds that RAS waits for other processes of the job; 0 for its own 5 s.
    """
    settings = [b"SET FORMAT json", *([b"TIMEOUT %d" % patience] if patience else [])]
    return _ask(address, settings, b"VERBOSE STATUS", seconds)


def listens(address: RasAddress) -> bool:
    """Whether anything does; nothing is sent."""
    for family, place in _places(address):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as link:
            link.settimeout(STAGGER)
            link.connect(place)
            return True
    return False


def diagnostics(address: RasAddress, *, seconds: float) -> bytes | Unread | None:
    """NCCL's own comparison of the ranks' GPUs, driver and settings: since 2.31."""
    return _ask(address, [], b"DIAGNOSTICS", seconds)


def _ask(
    address: RasAddress, settings: list[bytes], question: bytes, seconds: float
) -> bytes | Unread | None:
    end = time.monotonic() + seconds
    try:
        with _greeted(_places(address), end) as link:
            for setting in settings:
                _set(link, setting, end)
            link.settimeout(_left(end))
            link.sendall(question + b"\n")
            return _until_it_hangs_up(link, end)
    except ConnectionRefusedError:
        return None
    except TimeoutError:
        return Unread(why=f"NCCL's RAS at {address} did not answer within {seconds:g} s")
    except _NoRasAnswerError as reason:
        return Unread(why=f"{address}: {reason}")
    except OSError as problem:
        words = problem.strerror or str(problem)
        return Unread(why=f"NCCL's RAS at {address} could not be asked: {words}")


def _set(link: socket.socket, setting: bytes, end: float) -> None:
    link.settimeout(_left(end))
    link.sendall(setting + b"\n")
    if _line(link, end).strip().upper() != b"OK":  # `ERROR: Unknown command SET FORMAT json`
        raise _NoRasAnswerError(TOO_OLD)


def _places(address: RasAddress) -> list[_Place]:
    """localhost is both loopback addresses, whatever a name server says of it."""
    hosts = ("127.0.0.1", "::1") if address.host == LOCALHOST else (address.host,)
    flags = socket.AI_NUMERICHOST if address.needs_no_resolver else 0
    found = [
        one
        for host in hosts
        for one in socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM, flags=flags)
    ]
    return list(dict.fromkeys((family, place) for family, _, _, _, place in found))


@contextlib.contextmanager
def _greeted(places: list[_Place], end: float) -> Iterator[socket.socket]:
    """The first connection that is answered; the others are closed."""
    with contextlib.ExitStack() as opened, selectors.DefaultSelector() as waiting:
        problems: list[Exception] = []
        alive, tried = list(places), 0
        while True:
            if alive and tried < MOST_CONNECTIONS:
                place = alive[tried % len(alive)]
                tried += 1
                try:
                    link = opened.enter_context(_connected(place, end))
                except OSError as refusal:
                    problems.append(refusal)
                    alive.remove(place)
                    continue
                waiting.register(link, selectors.EVENT_READ, link)
            if not waiting.get_map():
                raise _worst(problems)
            pause = STAGGER if alive and tried < MOST_CONNECTIONS else _left(end)
            for key, _ in waiting.select(min(pause, _left(end))):
                waiting.unregister(key.data)
                try:
                    _check_greeting(_line(key.data, end))
                except (_RasHungUpError, ConnectionError) as problem:  # a process on its way out
                    problems.append(problem)
                    key.data.close()
                    continue
                yield key.data
                return


def _connected(place: _Place, end: float) -> socket.socket:
    family, address = place
    link = socket.socket(family, socket.SOCK_STREAM)
    try:
        link.settimeout(_left(end))
        link.connect(address)
        link.sendall(GREETING)
    except BaseException:
        link.close()
        raise
    return link


def _worst(problems: list[Exception]) -> Exception:
    """A refusal says that nothing is there; a machine may have no IPv6. Anything else is news."""
    usual = (errno.ECONNREFUSED, errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.ENETUNREACH)
    news = [one for one in problems if getattr(one, "errno", None) not in usual]
    refused = [one for one in problems if isinstance(one, ConnectionRefusedError)]
    return (news or refused or problems)[0]


def _check_greeting(line: bytes) -> None:
    if not line.upper().startswith(GREETED):
        raise _NoRasAnswerError("what listens there is not NCCL's RAS")


def _line(link: socket.socket, end: float) -> bytes:
    """Byte by byte: what follows is another answer."""
    received = bytearray()
    while not received.endswith(b"\n"):
        if len(received) >= LONGEST_LINE:
            raise _NoRasAnswerError("what listens there is not NCCL's RAS")
        link.settimeout(_left(end))
        chunk = link.recv(1)
        if not chunk:
            raise _RasHungUpError("the connection was closed before an answer came")
        received += chunk
    return bytes(received)


def _until_it_hangs_up(link: socket.socket, end: float) -> bytes:
    parts: list[bytes] = []
    have = 0
    while True:
        link.settimeout(_left(end))
        chunk = link.recv(1 << 20)
        if not chunk:
            return b"".join(parts)
        have += len(chunk)
        if have > LARGEST:
            raise _NoRasAnswerError(f"its answer is larger than {LARGEST >> 20} MiB")
        parts.append(chunk)
        if have < LONGEST_LINE and (refusal := _refusal(b"".join(parts))):
            raise _NoRasAnswerError(refusal)


def _refusal(answer: bytes) -> str:
    """After one of these the connection stays open, for another question."""
    if not answer.startswith((b"ERROR: ", b"BUSY: ")) or not answer.endswith(b"\n"):
        return ""
    if answer.startswith(b"BUSY: "):
        return "it is busy with the same question of another client"
    return "this version of NCCL does not know the question"


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
