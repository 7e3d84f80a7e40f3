"""Which addresses of a node are worth probing, and which pairs of nodes.

Every node connects to every target of every other: that is cheap, and one cell of the matrix is
one firewall rule. Sizes and loss are measured between all pairs of up to `ALL_PAIRS` nodes. Of
more, each node is measured with the two before and the two behind it in its rack and with its
counterpart in the racks before and behind: at most six partners, so that the cost of a node does
not grow with their number, while every node, every rack and every way between neighbouring racks
is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from holdfast.analysis.machine import (
    CouldNotLook,
    Interface,
    MachineFacts,
    Resolution,
    Unread,
    addresses,
    gloo_choice,
    known,
    nccl_choice,
)
from holdfast.analysis.machine.interface_choice import ChoiceRule, InterfaceChoice

MOST = 16
"""addresses of one node; NCCL's sockets take no more interfaces either"""
ALL_PAIRS = 16
"""nodes"""
NEIGHBOURS = 2

T = TypeVar("T")


class DataAddress(NamedTuple):
    interface: str
    address: str


def data_addresses(facts: MachineFacts) -> tuple[DataAddress, ...]:
    """Where the traffic of a job may arrive on this node, most likely first.

    What NCCL and Gloo will take; then what the node's own name and the master's stand for; then
    every other interface that leads outside. Loopback and
    link-local IPv6 are never among them: no other node can reach those. Raises CouldNotLook when
    the interfaces are not known.
    """
    interfaces = known(facts.interfaces)
    wanted = (*_chosen(facts), *_names(facts), *_outside(interfaces))
    found: dict[str, DataAddress] = {}
    for text in wanted:
        carrier = addresses.carrier(interfaces, text)
        if carrier and carrier.kind != "loopback" and not addresses.is_link_local(text):
            found.setdefault(text, DataAddress(carrier.name, text))
    return tuple(found.values())[:MOST]


def taken_addresses(facts: MachineFacts) -> frozenset[str]:
    """Those of `data_addresses` that a job is going to use, as far as that can be told: what NCCL
    (where there are GPUs) and Gloo take, and what the place of the meeting stands for."""
    gpus = isinstance(facts.accelerators, Unread) or bool(facts.accelerators)
    taken = set(_chosen(facts, nccl=gpus))
    if isinstance(facts.master_name, Resolution):
        taken.update(facts.master_name.addresses)
    return frozenset(taken)


def _chosen(facts: MachineFacts, *, nccl: bool = True) -> Iterator[str]:
    choosers: tuple[Callable[[MachineFacts], InterfaceChoice], ...] = (
        nccl_choice.bootstrap,
        gloo_choice.choose,
        nccl_choice.sockets,
    )
    for choose in choosers:
        if choose is not gloo_choice.choose and not nccl:
            continue
        try:
            choice = choose(facts)
        except CouldNotLook:
            continue
        for taken in choice.taken:
            if choose is not nccl_choice.sockets or _counts(facts, choice, taken.address):
                yield taken.address


def _counts(facts: MachineFacts, choice: InterfaceChoice, address: str) -> bool:
    """NCCL's sockets list every bridge of containers; it counts where the user asked for it."""
    carrier = addresses.carrier(known(facts.interfaces), address)
    return choice.rule is ChoiceRule.NAMED or not (carrier and addresses.is_private_bridge(carrier))


def _names(facts: MachineFacts) -> Iterator[str]:
    for name in (facts.own_name, facts.master_name):
        if isinstance(name, Resolution):
            yield from name.addresses


def _outside(interfaces: Iterable[Interface]) -> Iterator[str]:
    """Of tunnels, bonds and the like ('virtual') only those that something above names: container
    networks make many of them, some with the same address everywhere."""
    for interface in interfaces:
        ordinary = interface.kind in ("physical", "veth", "bridge")
        if interface.running and ordinary and not addresses.is_private_bridge(interface):
            yield from (address.ip for address in interface.addresses)


def measured_pairs(racks: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """(source, target) for sizes and loss, both ways of each pair; `racks`: '' where not known."""
    names = list(racks)
    if len(names) <= ALL_PAIRS:
        return tuple((a, b) for a in names for b in names if a != b)
    by_rack: dict[str, list[str]] = {}
    for name in names:
        by_rack.setdefault(racks[name], []).append(name)
    rows = list(by_rack.values())
    pairs = [pair for row in rows for step in range(1, NEIGHBOURS + 1) for pair in _ring(row, step)]
    for row, following in _ring(rows, 1):
        pairs += zip(row, following, strict=False)
    both_ways = dict.fromkeys(pair for a, b in pairs for pair in ((a, b), (b, a)))
    return tuple(both_ways)


def _ring(row: Sequence[T], step: int) -> list[tuple[T, T]]:
    """Each with the one `step` places behind it; nothing is its own neighbour."""
    pairs = ((one, row[(at + step) % len(row)]) for at, one in enumerate(row))
    return [(one, other) for one, other in pairs if one is not other]
