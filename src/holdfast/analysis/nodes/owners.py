"""Which node an address or a name belongs to, and which node serves the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.analysis.machine import Unread, addresses, rendezvous
from holdfast.analysis.machine.addresses import IP
from holdfast.analysis.nodes.facts import Node, NodesFacts, StoreBelief


class AddressBook(NamedTuple):
    """Which nodes have which address, and which answer to which name."""

    by_address: dict[IP, tuple[str, ...]]
    by_name: dict[str, Node]

    def owners(self, ip: str) -> tuple[str, ...]:
        """The nodes that have this address on an interface; more than one for docker0's. Loopback
        belongs to none: every node has it."""
        parsed = addresses.parse(ip.partition("%")[0])
        return self.by_address.get(parsed, ()) if parsed else ()

    def named(self, name: str) -> Node | None:
        """The node that is called so: by the name it was reached by, its own, or its full one."""
        return self.by_name.get(name)

    def owners_of(self, ips: Iterable[str]) -> tuple[str, ...]:
        return tuple(sorted({owner for ip in ips for owner in self.owners(ip)}))


def book(facts: NodesFacts) -> AddressBook:
    by_address: dict[IP, set[str]] = {}
    by_name: dict[str, Node] = {}
    for node in facts.nodes:
        for name in (node.name, node.facts.host, node.facts.own_fqdn):
            if isinstance(name, str):
                by_name.setdefault(name, node)
        interfaces = () if isinstance(node.facts.interfaces, Unread) else node.facts.interfaces
        for interface in interfaces:
            for address in interface.addresses:
                ip = addresses.parse(address.ip.partition("%")[0])
                if ip is not None and not ip.is_loopback:
                    by_address.setdefault(ip, set()).add(node.name)
    return AddressBook({ip: tuple(sorted(names)) for ip, names in by_address.items()}, by_name)


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
    if not host:
        return ()
    known = book(facts)
    called = known.named(host)
    return known.owners_of(addresses_of(facts, host)) or ((called.name,) if called else ())
