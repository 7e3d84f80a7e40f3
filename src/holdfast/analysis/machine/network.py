"""Interfaces, routes, names, what a connect brings, and the port of the store."""

from __future__ import annotations

import msgspec

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


class Gid(Fact, frozen=True):
    """One address in the table of an RDMA port."""

    index: int
    gid: str
    kind: str
    """'IB/RoCE v1', 'RoCE v2', '' where it does not say"""
    interface: str = ""


class RdmaCard(Fact, frozen=True):
    """An RDMA device (HCA) as a whole."""

    name: str
    driver: str
    """'mlx5_core', 'bnxt_en', 'efa', 'irdma', 'rxe'…"""
    bus_id: str
    """'' for a virtual one"""
    numa: int | None
    firmware: str
    uverbs: str
    """'/dev/infiniband/uverbs0'; '' when the kernel names none"""
    open_error: str
    """errno's name when this user could not open it: 'ENOENT', 'EACCES'; '' when it could"""


class RdmaPort(Fact, frozen=True):
    """A port of an RDMA device (HCA), as /sys/class/infiniband shows it."""

    device: str
    number: int
    state: str
    """'ACTIVE', 'DOWN', 'INIT', 'ARMED'…"""
    link_layer: str
    """'InfiniBand' or 'Ethernet' (RoCE)"""
    physical_state: str = ""
    """'LinkUp', 'Polling', 'Disabled', 'Sleep'…; '' where the kernel does not say"""
    rate: float | None = None
    """Gb/s, of all lanes"""
    rate_text: str = ""
    """'400 Gb/sec (4X NDR)'"""
    lid: int | None = None
    subnet_manager_lid: int | None = None
    active_mtu: int | None = None
    """bytes; by libibverbs, sysfs has it not"""
    max_mtu: int | None = None
    interfaces: tuple[str, ...] = ()
    """network interfaces of the same port"""
    gids: tuple[Gid, ...] = ()
    counters: dict[str, int] = msgspec.field(default_factory=dict)
    """of errors, those that are not zero: 'symbol_error', 'link_downed', 'packet_seq_err'…"""
    growing: dict[str, int] = msgspec.field(default_factory=dict)
    """by how much they grew between two looks"""

    @property
    def name(self) -> str:
        return f"{self.device}:{self.number}"


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
