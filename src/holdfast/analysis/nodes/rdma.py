"""How each node will use RDMA, in words that can be compared between nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from holdfast.analysis.machine import (
    CouldNotLook,
    MachineFacts,
    Unread,
    gid_choice,
    known,
    rdma_use,
)
from holdfast.analysis.machine.rdma_use import INFINIBAND, ROCE, PortAddress
from holdfast.analysis.nodes import differences
from holdfast.analysis.nodes.differences import Difference
from holdfast.analysis.nodes.facts import Node

LAYERS = {INFINIBAND: "InfiniBand", ROCE: "RoCE"}


class RdmaOfNode(NamedTuple):
    """'' everywhere means that there is none, or that it is unknown."""

    ports: tuple[str, ...]
    """'mlx5_0:1'; () when NCCL will use none"""
    why: str
    """why none"""
    layers: str
    """'InfiniBand', 'RoCE' or 'InfiniBand, RoCE'"""
    rates: str
    """'400 Gb/s', or '200 Gb/s, 400 Gb/s' where they differ"""
    mtus: str
    """'4096', by libibverbs"""
    subnets: str
    """of InfiniBand: prefixes of its addresses"""
    addresses: str
    """of RoCE: 'RoCE v2, IPv4'"""


def of_node(node: Node) -> RdmaOfNode | Unread:
    try:
        return _of_machine(node.facts)
    except CouldNotLook as gap:
        return Unread(why=gap.why)


def _of_machine(facts: MachineFacts) -> RdmaOfNode:
    ports, why = rdma_use.use(facts)
    cards = {card.name: card for card in known(facts.rdma_cards)} if ports else {}
    mtus = [
        card.active_mtu[port.number]
        for port in ports
        if (card := cards.get(port.device)) and port.number in card.active_mtu
    ]
    fabric = [port for port in ports if port.link_layer == INFINIBAND]
    return RdmaOfNode(
        ports=tuple(port.name for port in ports),
        why=why,
        layers=_listed(LAYERS[port.link_layer] for port in ports),
        rates=_listed(f"{port.rate:g} Gb/s" for port in ports if port.rate),
        mtus=_listed(map(str, mtus)),
        subnets=_listed(":".join(p.gids[0].gid.split(":")[:4]) for p in fabric if p.gids),
        addresses=_listed(_kind(one) for one in rdma_use.roce_addresses(facts, ports)),
    )


def _kind(one: PortAddress) -> str:
    if one.gid is None:
        return "no address"
    family = "IPv6" if gid_choice.is_ipv6(one.gid) else "IPv4"
    local = "link-local " if gid_choice.is_link_local(one.gid) else ""
    return f"{one.gid.kind or 'unknown type'}, {local}{family}"


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


class RdmaDifference(NamedTuple):
    what: str
    unequal: Difference
    meaning: str
    fix: str
    apart: bool
    """nodes that have nothing in common: they cannot talk to each other"""


class _Question(NamedTuple):
    what: str
    value: Callable[[RdmaOfNode], str]
    meaning: str
    fix: str
    parts: bool = False
    """two values without a common part are of nodes that cannot talk to each other"""


QUESTIONS = (
    _Question(
        what="type of RDMA link",
        value=lambda one: one.layers,
        meaning="InfiniBand and RoCE cannot talk to each other",
        fix="select cards of one type on every node: `export NCCL_IB_HCA==mlx5_0,mlx5_1`",
        parts=True,
    ),
    _Question(
        what="number of RDMA ports",
        value=lambda one: str(len(one.ports)),
        meaning="a node with fewer ports slows the whole job down",
        fix="see which port is missing on the node with fewer: `ibstat`, or NCCL_IB_HCA there",
    ),
    _Question(
        what="MTU of RDMA ports",
        value=lambda one: one.mtus,
        meaning="NCCL 2.20 to 2.28 does not agree on the smaller one: transfers end with status 1, "
        "2 or 8, or hang; others use the smaller one for all",
        fix="use one MTU: for RoCE that of the interface (`ip link show`), for InfiniBand that of "
        "the subnet manager's partition",
    ),
    _Question(
        what="InfiniBand subnet",
        value=lambda one: one.subnets,
        meaning="cards of different subnets reach each other only by a router",
        fix="see which fabric the cards are cabled to: `ibstat`, `sudo iblinkinfo`",
    ),
    _Question(
        what="type of RoCE address",
        value=lambda one: one.addresses,
        meaning="the two ends must have addresses of the same type: else connections fail with "
        "'Invalid argument'",
        fix="unset NCCL_IB_GID_INDEX everywhere, and give all RoCE ports addresses of one family",
    ),
)


def compare(using: Mapping[str, RdmaOfNode]) -> list[RdmaDifference]:
    """What differs between nodes that use RDMA; a node of which it is unknown is left out."""
    found = []
    for asked in QUESTIONS:
        values = {name: asked.value(one) for name, one in using.items() if asked.value(one)}
        unequal = differences.compare(values)
        if unequal is not None:
            parts = [frozenset(value.split(", ")) for value in values.values()]
            apart = asked.parts and not frozenset.intersection(*parts)
            found.append(RdmaDifference(asked.what, unequal, asked.meaning, asked.fix, apart))
    return found
