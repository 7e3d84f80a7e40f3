"""By which interface a node really sends to another, against the one that its ranks announce.

NCCL binds only its listening side: what it sends leaves by the kernel's route.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.analysis.machine import Interface, Unread, addresses
from holdfast.analysis.nodes.announced import NCCL, Announced
from holdfast.analysis.nodes.facts import NodesFacts
from holdfast.analysis.nodes.paths import RouteTo


class RouteDetour(NamedTuple):
    """A route that leaves by another interface than the announced one, in whose subnet it ends."""

    route: RouteTo
    announced: str
    """the interface that NCCL takes on the source"""
    overlapping: tuple[str, ...]
    """all interfaces of the source in the subnet of the target"""


def detours(
    facts: NodesFacts, every: Sequence[Announced], routes: Iterable[RouteTo]
) -> list[RouteDetour]:
    """Routes to announced addresses that do not leave where the source listens, although it is in
    that very subnet. A route through a gateway, or from another subnet, has a reason of its own."""
    own = {one.node: one for one in every if one.program == NCCL} or {o.node: o for o in every}
    wanted = {(one.node, one.address) for one in own.values()}
    found = []
    for route in routes:
        mine = own.get(route.source)
        if mine is None or route.error or route.own_address:
            continue
        elsewhere = route.interface != mine.interface
        if not elsewhere or (route.target.node, route.target.address) not in wanted:
            continue
        holders = tuple(_in_subnet(facts, route.source, route.target.address))
        if mine.interface in holders:
            found.append(RouteDetour(route, mine.interface, holders))
    return found


def _in_subnet(facts: NodesFacts, node: str, ip: str) -> list[str]:
    interfaces = facts.node(node).facts.interfaces
    known: Iterable[Interface] = () if isinstance(interfaces, Unread) else interfaces
    return [one.name for one in known if addresses.neighbour_on([one], ip)]
