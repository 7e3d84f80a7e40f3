"""Every node resolves the name of every other: which answers lead to the wrong machine, or nowhere.

The truth is the target's own list of addresses, not the majority: two nodes may see two addresses
of one machine (split horizon), and both are right.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from holdfast.analysis.machine import Resolution, Unread, addresses, rendezvous
from holdfast.analysis.nodes import owners
from holdfast.analysis.nodes.differences import Gap
from holdfast.analysis.nodes.facts import NodesFacts
from holdfast.analysis.nodes.owners import AddressBook


class NameProblem(enum.Enum):
    UNRESOLVED = "does not resolve"
    LOOPBACK = "is loopback"
    """on another node than its own: each would connect to itself"""
    OTHER_NODE = "is another node"
    NO_NODE = "is no node's address"
    """outdated, or translated (NAT)"""


class Answer(NamedTuple):
    """What one node makes of the name of another."""

    asker: str
    name: str
    target: str
    """the node that is meant; '' for a name that is no node's own (a master's alias)"""
    resolution: Resolution
    problem: NameProblem | None
    """None where it leads to the target"""
    found_at: str = ""
    """the node that has the address instead"""

    @property
    def addresses(self) -> str:
        return ", ".join(self.resolution.addresses)


def answers(facts: NodesFacts) -> tuple[list[Answer], list[Gap]]:
    """What every node makes of the names of the others; its own name is its own affair."""
    found: list[Answer] = []
    gaps: list[Gap] = []
    judge = _Judge(owners.book(facts), owners.store_hosts(facts), _some_unread(facts))
    for node in facts.nodes:
        if isinstance(node.facts.interfaces, Unread):  # an address that no node has may be its
            gaps.append(Gap(node.name, node.facts.interfaces.why))
        if isinstance(node.names, Unread):
            gaps.append(Gap(node.name, node.names.why))
            continue
        for one in node.names:
            target = judge.book.named(one.name)
            if target is not node and addresses.parse(one.name) is None:
                found.append(judge.answer(node.name, one, target.name if target else ""))
    return found, gaps


class _Judge(NamedTuple):
    book: AddressBook
    store_hosts: tuple[str, ...]
    some_unread: bool
    """the interfaces of some node are not known: an address that no node has may be its"""

    def answer(self, asker: str, one: Resolution, target: str) -> Answer:
        if not one.addresses:
            return Answer(asker, one.name, target, one, NameProblem.UNRESOLVED)
        if all(addresses.is_loopback(ip) for ip in one.addresses):
            own = not target and asker in self.store_hosts
            return Answer(asker, one.name, target, one, None if own else NameProblem.LOOPBACK)
        found = self.book.owners_of(one.addresses)
        if target in found or not target or self.some_unread:
            return Answer(asker, one.name, target, one, None)
        if found:
            return Answer(asker, one.name, target, one, NameProblem.OTHER_NODE, found[0])
        return Answer(asker, one.name, target, one, NameProblem.NO_NODE)


def _some_unread(facts: NodesFacts) -> bool:
    return any(isinstance(node.facts.interfaces, Unread) for node in facts.nodes)


def is_master(facts: NodesFacts, name: str) -> bool:
    """Will every rank resolve this name to find the store?"""
    host, _ = rendezvous.master_host(facts.plan)
    return bool(host) and name == host
