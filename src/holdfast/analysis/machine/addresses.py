"""Pure questions about IP addresses and the interfaces that carry them."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable

from holdfast.analysis.machine import Interface, MachineFacts, Route, Unread

IP = ipaddress.IPv4Address | ipaddress.IPv6Address


@functools.lru_cache(maxsize=4096)  # between many nodes the same few are asked for a million times
def parse(text: str) -> IP | None:
    """The address a text stands for, '::ffff:10.0.0.5' as the IPv4 address it is, else None."""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(ip, "ipv4_mapped", None) or ip


def is_loopback(text: str) -> bool:
    """Loopback, or the unspecified address: a connect to 0.0.0.0 ends on this machine too."""
    ip = parse(text)
    return ip is not None and (ip.is_loopback or ip.is_unspecified)


def is_ipv6(text: str) -> bool:
    return isinstance(parse(text), ipaddress.IPv6Address)


def is_link_local(text: str) -> bool:
    """fe80::/10 only: IPv4's 169.254.0.0/16 needs no scope and is used on some fabrics."""
    ip = parse(text)
    return isinstance(ip, ipaddress.IPv6Address) and ip.is_link_local


def carrier(interfaces: Iterable[Interface], text: str) -> Interface | None:
    """The interface that has this very address; all of 127.0.0.0/8 belongs to loopback."""
    ip = _without_scope(text)
    for interface in interfaces:
        if interface.kind == "loopback" and is_loopback(text):
            return interface
        if ip and any(_without_scope(address.ip) == ip for address in interface.addresses):
            return interface
    return None


def neighbour_on(interfaces: Iterable[Interface], text: str) -> Interface | None:
    """The interface whose subnet holds this address, so that packets for it leave there."""
    ip = _without_scope(text)
    for interface in interfaces:
        for address in interface.addresses:
            own = _without_scope(address.ip)
            if ip is None or own is None or ip.version != own.version:
                continue
            if ip in ipaddress.ip_network(f"{own}/{address.prefix}", strict=False):
                return interface
    return None


def is_private_bridge(interface: Interface) -> bool:
    """A bridge that container and VM software makes for itself, behind NAT.

    A hypervisor's own bridge ('br0' with the network card in it) is an ordinary way to the
    network, so the kind alone does not convict.
    """
    names = ("docker", "br-", "virbr", "podman", "cni", "lxcbr", "lxdbr")
    return interface.kind == "bridge" and interface.name.startswith(names)


def leads_into_a_container(interface: Interface) -> bool:
    """By the name that container software gives to its end of a veth pair: inside the container
    the other end, often eth0, is the way out."""
    return interface.kind == "veth" and interface.name.startswith(("veth", "cali", "lxc", "azv"))


def outward(facts: MachineFacts) -> tuple[str, str] | None:
    """The interface and address with which this machine speaks to others, for use in advice."""
    if isinstance(facts.interfaces, Unread):
        return None
    routes = () if isinstance(facts.routes, Unread) else facts.routes
    by_default_route = [r.interface for r in sorted(routes, key=_cost) if _is_default(r)]
    running = [i for i in facts.interfaces if i.running and not is_private_bridge(i)]
    physical = [i.name for i in running if i.kind == "physical"]
    # without a default route, as in a container of an internal network
    others = [
        i.name
        for i in running
        if i.kind == "bridge" or (i.kind == "veth" and not leads_into_a_container(i))
    ]
    for name in (*by_default_route, *physical, *others):
        for interface in facts.interfaces:
            if interface.name == name and interface.addresses:
                best = min(interface.addresses, key=lambda a: (is_link_local(a.ip), is_ipv6(a.ip)))
                return interface.name, best.ip
    return None


def has_ipv6_route(routes: Iterable[Route]) -> bool:
    """Is there a way to any other IPv6 host: more than link-local, multicast and own addresses?"""
    for route in routes:
        try:
            network = ipaddress.ip_network(route.destination)
        except ValueError:
            continue
        local = network.is_link_local or network.is_multicast or route.interface == "lo"
        if network.version == 6 and network.prefixlen < 128 and not local:
            return True
    return False


def _is_default(route: Route) -> bool:
    return route.destination in ("0.0.0.0/0", "::/0")


def _cost(route: Route) -> tuple[bool, int]:
    return (":" in route.destination, route.metric)


def _without_scope(text: str) -> IP | None:
    return parse(text.partition("%")[0])
