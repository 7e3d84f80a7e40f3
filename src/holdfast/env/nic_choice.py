"""Which interface NCCL takes by itself, and whether the other machines can reach it. Pure.

NCCL (src/misc/socket.cc, src/os/linux.cc at 2.30.7): the first `ib*`; else the first that is not
called docker*, lo or virbr*; else docker*; else lo; else virbr*. The first counts for its start.
"""

from __future__ import annotations

import ipaddress

from holdfast.analysis.machine import Interface, MachineFacts, Resolution, Route, addresses

LAST = ("docker", "lo", "virbr")


def nccl_takes(interfaces: tuple[Interface, ...]) -> Interface | None:
    usable = [one for one in interfaces if one.running and one.addresses]
    choices = [
        [one for one in usable if one.name.startswith("ib")],
        [one for one in usable if not one.name.startswith(LAST)],
        *([one for one in usable if one.name.startswith(name)] for name in LAST),
    ]
    return next((found[0] for found in choices if found), None)


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


def better(facts: MachineFacts) -> tuple[str, str]:
    """The interface to name, and the one NCCL would take; ('', '') where its choice will do."""
    if not facts.plan.multi_node or not isinstance(facts.interfaces, tuple):
        return "", ""
    chosen, right = nccl_takes(facts.interfaces), leads_out(facts)
    if chosen is None or not right or chosen.name == right:
        return "", ""
    leads_nowhere = chosen.kind in ("veth", "loopback") or addresses.is_private_bridge(chosen)
    return (right, chosen.name) if leads_nowhere else ("", "")


def gloo_is_misled(facts: MachineFacts) -> bool:
    """Gloo goes by the machine's own name: where that is loopback, no other machine reaches it."""
    own = facts.own_name
    if not facts.plan.multi_node or not isinstance(own, Resolution) or not own.addresses:
        return False
    return addresses.is_loopback(own.addresses[0])
