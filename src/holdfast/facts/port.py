"""The store's port."""

from __future__ import annotations

from holdfast.facts.base import Fact, Unread
from holdfast.facts.processes import Process


class Bind(Fact, frozen=True):
    """One try to bind the store's port by the store's own rule (SO_REUSEADDR, no listen)."""

    family: str
    """'IPv6' ([::], dual stack) or 'IPv4' (0.0.0.0)"""
    error: str
    """'' when it worked, else the errno's name: 'EADDRINUSE', 'EACCES', …"""


class Connection(Fact, frozen=True):
    """A socket whose local port is the one we want."""

    local: str
    peer: str
    state: str
    """the kernel's name: 'LISTEN', 'ESTABLISHED', 'TIME_WAIT', …"""
    seconds_left: float | None
    """only for TIME_WAIT"""
    user: str
    """'' when the kernel no longer tells"""
    owner: Process | Unread | None
    """None for states that have no process (TIME_WAIT)"""


class StoreAnswer(Fact, frozen=True):
    """Does a listener on our port speak the protocol of torch's TCPStore?"""

    is_store: bool
    keys: int | None
    """how many keys the store holds, when it told us"""


class PortFacts(Fact, frozen=True):
    port: int
    binds: tuple[Bind, ...]
    listeners: tuple[Connection, ...]
    others: tuple[Connection, ...]
    """non-listening sockets with this local port: outgoing, accepted, TIME_WAIT"""
    store: StoreAnswer | Unread | None
    """None when nobody listens"""


class PortRanges(Fact, frozen=True):
    ephemeral_low: int
    ephemeral_high: int
    reserved: tuple[tuple[int, int], ...]
    """ip_local_reserved_ports, inclusive ranges"""
    first_unprivileged: int
