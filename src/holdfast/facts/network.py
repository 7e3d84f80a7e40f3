"""Interfaces, routes, names and what a connect brings."""

from __future__ import annotations

from holdfast.facts.base import Fact


class Address(Fact, frozen=True):
    ip: str
    prefix: int


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
