"""Interfaces, routes, names, what a connect brings, and the port of the store."""

from __future__ import annotations

from holdfast.analysis.machine.fact import Fact, Unread
from holdfast.analysis.machine.host import Process


class Address(Fact, frozen=True):
    ip: str
    prefix: int
    label: str = ""
    """of an alias, 'eth0:1': NCCL and Gloo take it for the interface's name"""


class Interface(Fact, frozen=True):
    name: str
    state: str
    """operstate: 'up', 'down', 'unknown'…"""
    running: bool
    """IFF_UP and IFF_RUNNING"""
    kind: str
    """'loopback', 'physical', 'bridge', 'veth', 'virtual'"""
    speed: int | None
    """Mb/s; None when the kernel does not know"""
    mtu: int
    carrier_changes: int | None
    addresses: tuple[Address, ...]


class Route(Fact, frozen=True):
    interface: str
    destination: str
    """CIDR; '0.0.0.0/0' or '::/0' is the default route"""
    gateway: str
    metric: int


class Resolution(Fact, frozen=True):
    name: str
    addresses: tuple[str, ...]
    """in the resolver's order, IPv4 and IPv6"""
    error: str
    """'' or the resolver's words"""
    seconds: float


class Reach(Fact, frozen=True):
    """What one TCP connect to an address and port brought."""

    address: str
    port: int
    error: str
    """'' when connected, else 'ECONNREFUSED', 'ETIMEDOUT' (nothing came back), 'EHOSTUNREACH'…"""
    seconds: float


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
    """how many keys the store holds, when it answered"""


class PortFacts(Fact, frozen=True):
    port: int
    binds: tuple[Bind, ...]
    listeners: tuple[Connection, ...]
    others: tuple[Connection, ...]
    """non-listening sockets with this local port: outgoing, accepted, TIME_WAIT"""
    store: StoreAnswer | Unread | None
    """None when nothing listens"""


class PortRanges(Fact, frozen=True):
    ephemeral_low: int
    ephemeral_high: int
    reserved: tuple[tuple[int, int], ...]
    """ip_local_reserved_ports, inclusive ranges"""
    first_unprivileged: int
