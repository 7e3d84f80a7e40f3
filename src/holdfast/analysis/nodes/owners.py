"""Which node an address or a name belongs to, and which node serves the store."""

from __future__ import annotations

from holdfast.analysis.machine import Unread, addresses, rendezvous
from holdfast.analysis.nodes.facts import Node, NodesFacts, StoreBelief


def has_address(node: Node, ip: str) -> bool:
    """Does an interface of this node have the address? Loopback belongs to every node: no."""
    interfaces = node.facts.interfaces
    if isinstance(interfaces, Unread) or addresses.is_loopback(ip):
        return False
    return addresses.carrier(interfaces, ip) is not None


def owners(facts: NodesFacts, ip: str) -> tuple[str, ...]:
    """The nodes that have this address; more than one for docker0's."""
    return tuple(sorted(node.name for node in facts.nodes if has_address(node, ip)))


def named(facts: NodesFacts, name: str) -> Node | None:
    """The node that is called so: by the name it was reached by, its own, or its full one."""
    for node in facts.nodes:
        if name in (node.name, node.facts.host, node.facts.own_fqdn):
            return node
    return None


def addresses_of(facts: NodesFacts, host: str) -> tuple[str, ...]:
    """What the nodes resolve this host to; () when none of them was asked or knows it."""
    if addresses.parse(host):
        return (host,)
    found: dict[str, None] = {}
    for node in facts.nodes:
        for answer in () if isinstance(node.names, Unread) else node.names:
            if answer.name == host:
                found.update(dict.fromkeys(answer.addresses))
    return tuple(sorted(found))


def store_hosts(facts: NodesFacts) -> tuple[str, ...]:
    """The nodes that will serve the store, as far as known: those that believe it, else those that
    have the master's address."""
    believers = [
        node.name
        for node in facts.nodes
        if isinstance(node.store, StoreBelief) and node.store.hosts_it
    ]
    if believers:
        return tuple(sorted(believers))
    host, _ = rendezvous.master_host(facts.plan)
    meant = addresses_of(facts, host) if host else ()
    found = {owner for ip in meant for owner in owners(facts, ip)}
    if not found and host and (node := named(facts, host)) is not None:
        found = {node.name}
    return tuple(sorted(found))
