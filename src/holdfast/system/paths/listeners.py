"""What a node keeps open for the probes of the others, for as long as the check lasts."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence

from holdfast.analysis.nodes import Listening, NotListening, PortKind, Target
from holdfast.system.paths.connection_server import ConnectionServer
from holdfast.system.paths.responder import Responder
from holdfast.system.sockets import error_name, family_of

BACKLOG = 1024
"""the kernel caps it at somaxconn; a full one would drop SYNs as a firewall does"""
TRIES = 8
"""to find a port that is free for TCP and for UDP"""


@contextlib.asynccontextmanager
async def probe_listeners(
    node: str, addresses: Sequence[tuple[str, str]], master_port: int | None, *, key: bytes
) -> AsyncIterator[Listening]:
    """Listen on each (interface, address), and on the master port as torch's store would.

    Per address a port of the kernel's choice, for TCP and UDP. Where one cannot be opened, the
    answer says why, and there is no target: a refusal there would mean nothing.
    """
    targets: list[Target] = []
    left_out: list[NotListening] = []
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(ConnectionServer(node, key))
        responder = functools.partial(Responder, node=node, key=key)
        master = _listen_as_the_store(server, master_port) if master_port else ""
        for interface, address in addresses:
            spot = (node, interface, address)
            try:
                port = _listen(server, stack, responder, address)
            except OSError as problem:
                left_out.append(_left_out(spot, 0, PortKind.EPHEMERAL, words(problem)))
            else:
                targets.append(_target(spot, port, PortKind.EPHEMERAL))
            if master_port and master:
                left_out.append(_left_out(spot, master_port, PortKind.MASTER, master))
            elif master_port:
                targets.append(_target(spot, master_port, PortKind.MASTER))
        yield Listening(targets=tuple(targets), left_out=tuple(left_out))


def _listen_as_the_store(server: ConnectionServer, port: int) -> str:
    """'' or why torch's store could not listen either: [::] as dual stack, then 0.0.0.0."""
    try:
        server.add(_bound("::", port))
    except OSError:
        try:
            server.add(_bound("0.0.0.0", port))
        except OSError as problem:
            return words(problem)
    return ""


def _listen(
    server: ConnectionServer,
    stack: contextlib.AsyncExitStack,
    responder: Callable[[str, int], Responder],
    address: str,
) -> int:
    """One port for both protocols, so that one target stands for both."""
    for left in reversed(range(TRIES)):
        listener = _bound(address, 0)
        port: int = listener.getsockname()[1]
        try:
            stack.enter_context(responder(address, port))
        except OSError as problem:
            listener.close()
            if problem.errno != errno.EADDRINUSE or not left:
                raise
            continue
        except BaseException:
            listener.close()
            raise
        server.add(listener)
        return port
    raise AssertionError("the last try returns or raises")


def _bound(address: str, port: int) -> socket.socket:
    listener = socket.socket(family_of(address), socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((address, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _target(spot: tuple[str, str, str], port: int, kind: PortKind) -> Target:
    node, interface, address = spot
    return Target(node=node, interface=interface, address=address, port=port, kind=kind)


def _left_out(spot: tuple[str, str, str], port: int, kind: PortKind, why: str) -> NotListening:
    node, interface, address = spot
    return NotListening(
        node=node, interface=interface, address=address, port=port, kind=kind, why=why
    )


def words(problem: OSError) -> str:
    """'EADDRINUSE: Address already in use'."""
    return f"{error_name(problem)}: {os.strerror(problem.errno)}" if problem.errno else str(problem)
