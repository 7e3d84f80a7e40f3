"""The addresses that ranks will announce to each other, and whether the other nodes get there.

NCCL and Gloo choose per machine; only all nodes together show whether the choices fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.analysis.machine import (
    CouldNotLook,
    MachineFacts,
    Software,
    Unread,
    addresses,
    gloo_choice,
    nccl_choice,
    nic_filter,
)
from holdfast.analysis.machine.interface_choice import InterfaceChoice
from holdfast.analysis.nodes.blocked import network_of
from holdfast.analysis.nodes.differences import Gap
from holdfast.analysis.nodes.facts import Node, NodesFacts
from holdfast.analysis.nodes.paths import Outcome, Reached

NCCL, GLOO = "NCCL", "Gloo"
CHOOSERS: dict[str, Callable[[MachineFacts], InterfaceChoice]] = {
    NCCL: nccl_choice.bootstrap,
    GLOO: gloo_choice.choose,
}


class Announced(NamedTuple):
    """One address that the ranks of a node will tell the others."""

    node: str
    program: str
    interface: str
    address: str
    choice: InterfaceChoice


def may_use_nccl(machine: MachineFacts) -> bool:
    """Not where it is neither installed, nor of use, nor told which interface to take."""
    told = not isinstance(machine.settings, Unread) and any(
        machine.setting(name) for name in (nic_filter.NCCL, nccl_choice.COMM_ID)
    )
    return has_nccl(machine) or told


def has_nccl(machine: MachineFacts) -> bool:
    software = machine.software
    installed = not isinstance(software, Software) or bool(software.nccl)
    return installed or machine.accelerators != ()


def announced(facts: NodesFacts) -> tuple[list[Announced], list[Gap]]:
    """What NCCL and Gloo take on every node; a choice that fails is nic-name-missing's to tell."""
    found: list[Announced] = []
    gaps: dict[Gap, None] = {}
    for node in facts.nodes:
        for program, choose in CHOOSERS.items():
            if program == NCCL and not may_use_nccl(node.facts):
                continue
            try:
                choice = choose(node.facts)
            except CouldNotLook as gap:
                gaps[Gap(node.name, gap.why)] = None
                continue
            found += [
                Announced(node.name, program, one.name, one.address, choice)
                for one in choice.taken[:1]
            ]
    return found, list(gaps)


def all_reached(facts: NodesFacts, node: Node) -> bool:
    """Did every other node get to every address that NCCL and Gloo will use on this one?"""
    if isinstance(facts.reach, Unread):
        return False
    try:
        used = {one.address for choose in CHOOSERS.values() for one in choose(node.facts).taken[:1]}
        used |= {one.address for one in nccl_choice.sockets(node.facts).taken}
    except CouldNotLook:
        return False
    passed = {
        (one.source, one.target.address)
        for one in facts.reach
        if one.target.node == node.name and one.outcome is Outcome.OK
    }
    others = {other.name for other in facts.nodes} - {node.name}
    return bool(others) and passed >= {(source, ip) for source in others for ip in used}


def is_settled(facts: NodesFacts, node: Node) -> bool:
    """Do the others know better what a node suspects of its addresses? They got to all of them, or
    each that they did not get to is misplaced, which is said once for all nodes."""
    if isinstance(facts.reach, Unread) or all_reached(facts, node):
        return not isinstance(facts.reach, Unread)
    every, _ = announced(facts)
    own = {one.address for one in every if one.node == node.name}
    wrong = {
        one.announced.address
        for one in misplaced(facts, every, facts.reach)
        if one.announced.node == node.name
    }
    missed = {
        one.target.address
        for one in facts.reach
        if one.target.node == node.name and one.outcome is not Outcome.OK
    }
    tried = {one.target.address for one in facts.reach if one.target.node == node.name}
    return bool(wrong) and own <= tried | wrong and own & missed <= wrong


class Misplaced(NamedTuple):
    """An announced address that other nodes do not get to, while another one of the node works."""

    announced: Announced
    tries: tuple[Reached, ...]
    """the connects that failed; () where the same address on another node says it all"""
    same_on: tuple[str, ...]
    """the nodes that announce the very same address"""
    better: str
    """an interface over which every other node gets there; '' when there is none"""


def misplaced(
    facts: NodesFacts, every: Sequence[Announced], reach: Iterable[Reached]
) -> list[Misplaced]:
    """Addresses that are wrong to announce. A right network with a blocked path is not among them:
    some node gets to some other one there, or all their other addresses are unreachable too.
    Loopback is not either: each node's own check says it."""
    tries: dict[str, list[Reached]] = {}
    for each in reach:
        if each.source != each.target.node:
            tries.setdefault(each.target.node, []).append(each)
    by_address: dict[tuple[str, str], list[str]] = {}
    for one in every:
        by_address.setdefault((one.program, one.address), []).append(one.node)
    working = _working_networks(facts, every, tries)
    found = []
    for one in every:
        own = [t for t in tries.get(one.node, ()) if t.target.address == one.address]
        same = by_address[one.program, one.address]
        better = _better(one, tries.get(one.node, ()))
        failed = tuple(t for t in own if t.outcome is not Outcome.OK)
        alone = bool(own) and failed == tuple(own)
        if addresses.is_loopback(one.address):
            continue
        if len(same) > 1 and is_of_one_machine(facts, one.node, one.interface):
            found.append(Misplaced(one, failed, tuple(sorted(same)), better))
        elif better and (
            (alone and _network(facts, one) not in working)
            # a node that is not on that network at all: no rule is in the way
            or (failed and all(t.outcome is Outcome.NO_ROUTE for t in failed))
        ):
            found.append(Misplaced(one, failed, (), better))
    return found


def is_of_one_machine(facts: NodesFacts, node: str, interface: str) -> bool:
    """A bridge that software makes on each machine for itself, with the same address everywhere."""
    interfaces = facts.node(node).facts.interfaces
    return not isinstance(interfaces, Unread) and any(
        one.name == interface
        and (addresses.is_private_bridge(one) or one.name.startswith(("docker", "virbr")))
        for one in interfaces
    )


def _better(one: Announced, tries: Iterable[Reached]) -> str:
    """Another interface of the node, where every connect of every other node got through."""
    others: dict[str, list[Reached]] = {}
    for each in tries:
        if each.target.address != one.address:
            others.setdefault(each.target.interface, []).append(each)
    works = [n for n, seen in others.items() if all(t.outcome is Outcome.OK for t in seen)]
    return min(works, default="")


def _working_networks(
    facts: NodesFacts, every: Sequence[Announced], tries: Mapping[str, Sequence[Reached]]
) -> set[str]:
    """Subnets with an announced address that some other node got to."""
    return {
        _network(facts, one)
        for one in every
        if any(
            t.target.address == one.address and t.outcome is Outcome.OK
            for t in tries.get(one.node, ())
        )
    }


def _network(facts: NodesFacts, one: Announced) -> str:
    return network_of(facts.node(one.node).facts, one.address)
