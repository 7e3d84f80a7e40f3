"""A listening socket for the ranks' store, on a port of our choice or on the one asked for; and
whether the store of another node can be reached."""

from __future__ import annotations

import errno
import os
import random
import socket
import time
from collections.abc import Iterable

from holdfast.analysis.machine import Unread
from holdfast.errors import EnvironmentFailure
from holdfast.system import tcp_table
from holdfast.system.deadline import ask_here

LOOPBACK = "127.0.0.1"
FIRST_PORT = 20000
"""well above the services of a machine, below the ephemeral range of most"""
BACKLOG = 4096
"""every rank connects at once; the kernel cuts it to net.core.somaxconn"""
EPHEMERAL_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
USUAL_RANGE = (32768, 60999)
"""the default of Linux"""


def listen_anywhere(address: str = LOOPBACK) -> socket.socket:
    """On a free port that the kernel never hands to outgoing connections.

    A port from inside that range (what `bind(0)` gives) may be the local end of some other
    program's connection by the time the group forms again. The port is ours from here on:
    it is bound, not only found to be free.
    """
    span = ask_here(_ephemeral_range)
    low, high = USUAL_RANGE if isinstance(span, Unread) else span
    candidates = [port for port in range(FIRST_PORT, 65536) if not low <= port <= high]
    for port in random.sample(candidates, min(100, len(candidates))):
        try:
            return _listen(address, port)
        except OSError:  # noqa: PERF203 - a taken port is met once in a while
            continue
    try:
        return _listen(address, 0)  # a machine whose range covers everything
    except OSError as problem:
        raise EnvironmentFailure(
            f"cannot bind a port on {address}: {problem.strerror}",
            hint="is the loopback interface up? `ip link show lo`",
        ) from problem


def _ephemeral_range() -> tuple[int, int]:
    with open(EPHEMERAL_RANGE, encoding="ascii") as text:
        low, high = map(int, text.read().split())
    return low, high


def listen_on(port: int, address: str = LOOPBACK) -> socket.socket:
    """On this port; when it is in use, the error names the process."""
    try:
        return _listen(address, port)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            reason = f"port {port} is in use: {_owner(port)}"
        elif problem.errno == errno.EACCES:
            reason = f"port {port} is reserved for root on this machine"
        else:
            reason = f"cannot bind port {port} on {address}: {os.strerror(problem.errno or 0)}"
        raise EnvironmentFailure(
            reason, hint="omit the port: holdfast picks a free one"
        ) from problem


def everywhere(addresses: Iterable[str]) -> str:
    """What to bind so that all of these lead here."""
    return "::" if any(":" in address for address in addresses) else "0.0.0.0"


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if address == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # As the store itself does: connections of an earlier job in TIME_WAIT do no harm.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def try_to_connect(address: str, port: int, *, seconds: float, to: str) -> None:
    """To the store that node `to` serves; it listens already, so that one try is enough."""
    began = time.monotonic()
    try:
        socket.create_connection((address, port), timeout=seconds).close()
    except OSError as problem:
        waited = time.monotonic() - began
        why = f"no answer in {waited:.0f} s" if isinstance(problem, TimeoutError) else str(problem)
        raise EnvironmentFailure(
            f"the store of this round on {to}, {address} port {port}, cannot be reached: {why}",
            hint=f"open the ports from {FIRST_PORT} up between the nodes, or look for a firewall: "
            "`holdfast check --nnodes 2 …` on both",
        ) from problem


def _owner(port: int) -> str:
    rows = tcp_table.read(port)
    listening = [row for row in rows if row.state == "LISTEN"] or rows
    owners = tcp_table.owners_of({row.inode for row in listening if row.inode})
    for owner in owners.values():
        if not isinstance(owner, Unread):
            return f"{owner.description} listens on it"
    return next(
        (owner.why for owner in owners.values() if isinstance(owner, Unread)),
        "by an unknown process",
    )
