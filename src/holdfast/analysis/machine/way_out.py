"""Which interface leads to other machines, and which cannot. Pure."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from holdfast.analysis.machine import (
    Interface,
    MachineFacts,
    Resolution,
    Route,
    addresses,
    known,
)
from holdfast.analysis.machine.interface_choice import InterfaceChoice, Taken

TUNNEL = re.compile(r"(?:tun|tap|wg|ppp|utun|tailscale|zt)\w*")
"""VPN software names its interfaces so"""
LOOPBACK = "is loopback, which never leaves this machine"
MAY_BE_ROUTED = ("cni", "podman")
"""bridges whose networks some clusters do route between machines"""


def leads_out(facts: MachineFacts) -> str:
    """The interface by which this machine reaches the others; '' when that cannot be told."""
    if not isinstance(facts.interfaces, tuple):
        return ""
    master, routes = facts.master_name, facts.routes
    for text in master.addresses if isinstance(master, Resolution) else ():
        if addresses.is_loopback(text):
            continue
        own = addresses.carrier(facts.interfaces, text)
        name = own.name if own else _route(routes, text) if isinstance(routes, tuple) else ""
        if name:
            return name
    outward = addresses.outward(facts)
    return outward[0] if outward else ""


def _route(routes: tuple[Route, ...], text: str) -> str:
    """By the longest prefix, then the least metric."""
    fitting: list[tuple[int, int, str]] = []
    address = addresses.parse(text)
    for route in routes:
        try:
            network = ipaddress.ip_network(route.destination, strict=False)
        except ValueError:
            continue
        if address is not None and address in network:
            fitting.append((-network.prefixlen, route.metric, route.interface))
    return min(fitting)[2] if fitting else ""


class Doubt(NamedTuple):
    """Why other machines cannot, or can hardly, reach what a library takes."""

    taken: Taken
    why: str
    """of the interface: 'is loopback, …', 'has no carrier, …'"""
    certain: bool
    """no configuration of the network changes it"""
    is_down: bool = False


def doubts(choice: InterfaceChoice, facts: MachineFacts) -> list[Doubt]:
    """About each interface that a library takes, in its order."""
    interfaces = known(facts.interfaces)
    found = []
    for taken in choice.taken:
        if addresses.is_loopback(taken.address):
            found.append(Doubt(taken, LOOPBACK, certain=True))
            continue
        interface = addresses.carrier(
            interfaces, taken.address
        )  # by address: an alias is not in the list by its name
        why = (doubt(interface, facts) or _about_state(interface, taken)) if interface else ""
        if interface and why:
            certain, is_down = _is_dead_end(interface, facts), not interface.running
            found.append(Doubt(taken, why, certain=certain, is_down=is_down))
    return found


def doubt(interface: Interface, facts: MachineFacts) -> str:
    """Why other machines hardly reach an interface; '' where nothing speaks against it."""
    if interface.kind == "loopback":
        return LOOPBACK
    right = leads_out(facts)
    if right == interface.name or not (right or _has_another(interface, facts)):
        return ""
    if addresses.is_private_bridge(interface):
        return "is a bridge that container or VM software made for itself, behind NAT"
    if addresses.leads_into_a_container(interface):
        return "is one end of a pair that leads into a container"
    if TUNNEL.fullmatch(interface.name):
        return "is a tunnel of VPN software"
    return ""


def usable(facts: MachineFacts) -> list[str]:
    """Interfaces that may lead to other machines, the likeliest first."""
    right = leads_out(facts)
    names = [
        one.name
        for one in known(facts.interfaces)
        if one.running and one.addresses and not doubt(one, facts)
    ]
    return sorted(names, key=lambda name: name != right)


def _has_another(interface: Interface, facts: MachineFacts) -> bool:
    """Is there an ordinary interface beside this one?"""
    return any(
        one.running
        and one.addresses
        and one.name != interface.name
        and one.kind != "loopback"
        and not addresses.is_private_bridge(one)
        and not addresses.leads_into_a_container(one)
        for one in known(facts.interfaces)
    )


def _about_state(interface: Interface, taken: Taken) -> str:
    if not interface.running:
        return "has no carrier, or is down"
    if addresses.is_link_local(taken.address):
        return "has a link-local address only, which means nothing on another machine"
    return ""


def _is_dead_end(interface: Interface, facts: MachineFacts) -> bool:
    if interface.kind == "loopback":
        return True
    private = addresses.is_private_bridge(interface)
    routed = interface.name.startswith(MAY_BE_ROUTED) or leads_out(facts) == interface.name
    return private and not routed
