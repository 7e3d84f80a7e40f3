"""Blocked paths: which ports pass, what the answer means, and the command that opens them."""

from __future__ import annotations

import enum
import ipaddress
from collections import Counter
from collections.abc import Collection, Iterable

from holdfast import shell_words, text
from holdfast.analysis.machine import MachineFacts, Security, Unread, addresses
from holdfast.analysis.nodes.facts import NodesFacts
from holdfast.analysis.nodes.paths import Outcome, PortKind, Reached
from holdfast.analysis.nodes.pattern import Pair
from holdfast.analysis.nodes.reachability import NOT_REACHED, Matrix
from holdfast.findings import Evidence

MEANING = {
    Outcome.DROPPED: "nothing came back: a firewall drops the packets, or the path is down. To the "
    "job it looks like a hang: NCCL alone tries for a minute",
    Outcome.REJECTED: "the answer came at once and forbids it: a firewall rejects the connection, "
    "or a router cannot deliver it",
    Outcome.REFUSED: "the connection was reset although a listener was there: a firewall answers "
    "in its place, or the address leads to another machine",
    Outcome.NO_ROUTE: "the source has no route to that network",
    Outcome.NO_NEIGHBOUR: "no machine answered for this address on the last hop (ARP): it is down, "
    "its link is cut, or the address is not on that network",
    Outcome.FAILED: "the connect failed for a reason that holdfast has no explanation for",
}


class Ports(enum.Enum):
    """Which of the two ports that were tried are blocked."""

    ALL = "all"
    EPHEMERAL = "ephemeral"
    """the master's passes"""
    MASTER = "master"
    """ephemeral ones pass"""


def by_ports(paths: Matrix, store_hosts: Collection[str]) -> dict[Ports, dict[Pair, list[Reached]]]:
    """The failed connects of each blocked pair. Only the node that serves the store needs its
    master port; () where it is not known which one does."""
    found: dict[Ports, dict[Pair, list[Reached]]] = {kind: {} for kind in Ports}
    for pair, tries in paths.by_pair.items():
        failed = [one for one in tries if one.outcome in NOT_REACHED]
        kinds = {one.target.kind for one in failed}
        passing = {one.target.kind for one in tries} - kinds
        if failed and not passing:
            found[Ports.ALL][pair] = failed
        elif PortKind.EPHEMERAL in kinds:
            found[Ports.EPHEMERAL][pair] = failed
        elif failed and (not store_hosts or pair[1] in store_hosts):
            found[Ports.MASTER][pair] = failed
    return found


def meaning(tries: Iterable[Reached]) -> str:
    """What the most frequent outcome means."""
    outcome = commonest(tries)
    same = [one for one in tries if one.outcome is outcome]
    if outcome is Outcome.REJECTED and all(_is_local(one) for one in same):
        return "a firewall rule on the source itself forbids it"
    return MEANING[outcome]


def commonest(tries: Iterable[Reached]) -> Outcome:
    counted = Counter(one.outcome for one in tries)
    return min(counted, key=lambda outcome: (-counted[outcome], outcome.value))


def outcomes(tries: Iterable[Reached]) -> str:
    """'dropped', 'dropped and rejected'"""
    return text.names(one.outcome.value for one in tries)


def _is_local(one: Reached) -> bool:
    """EACCES alone does not say so: over IPv6 it is what a remote firewall's answer becomes."""
    answered_itself = bool(one.local_address) and one.error.endswith(f" from {one.local_address}")
    return one.error.startswith("EPERM") or answered_itself


def connect_evidence(one: Reached) -> Evidence:
    where = f"{one.target.address} port {one.target.port} ({one.target.interface} of"
    return Evidence(
        quote=f"connect to {where} {one.target.node}): "
        f"{one.error or one.outcome.value} after {one.seconds:.1f} s",
        source="connect(2)",
        host=one.source,
    )


def network_of(machine: MachineFacts, ip: str) -> str:
    """The subnet that this address of a machine is in; the address itself where it is not known."""
    interfaces = () if isinstance(machine.interfaces, Unread) else machine.interfaces
    carrier = addresses.carrier(interfaces, ip)
    for one in carrier.addresses if carrier else ():
        if one.ip == ip:
            return str(ipaddress.ip_network(f"{ip}/{one.prefix}", strict=False))
    return ip


def ephemeral_range(machine: MachineFacts) -> str:
    ranges = machine.port_ranges
    if isinstance(ranges, Unread):
        return ""
    return f"{ranges.ephemeral_low}-{ranges.ephemeral_high}"


def not_the_target(one: Reached) -> str:
    """What to do where no rule of the target's firewall is in the way; '' where one may be."""
    address = shell_words.word(one.target.address, "ADDRESS")
    source, node = text.name(one.source), text.name(one.target.node)
    if one.outcome is Outcome.NO_ROUTE:
        return f"on {source} run `ip route get {address}` and add the missing route"
    if one.outcome is Outcome.NO_NEIGHBOUR:
        link = f"check the link of {node} (`ip -br link`)"
        return f"{link}; on {source}: `ip neigh show {address}`"
    if one.outcome is Outcome.REJECTED and _is_local(one):
        return f"find the rule on {source} that forbids it: `sudo nft list ruleset`"
    if one.outcome is Outcome.FAILED:
        return f"on {source}: `nc -vz {address} {one.target.port}` while {node} listens"
    return ""


def opening(facts: NodesFacts, one: Reached, ports: Ports) -> str:
    """The command that lets the source's network in, for the firewall that the target has."""
    target = facts.node(one.target.node).facts
    source = facts.node(one.source).facts
    network = network_of(source, one.local_address) if one.local_address else ""
    network = shell_words.word(network or network_of(target, one.target.address), "NETWORK")
    port = str(one.target.port) if ports is Ports.MASTER else ""
    if ports is Ports.EPHEMERAL:
        port = ephemeral_range(target)
    if "firewalld" in _firewall(target):
        return f"`sudo firewall-cmd --zone=trusted --add-source={network}`"
    if "ufw" in _firewall(target) or not _firewall(target).startswith("nftables"):
        wanted = f" to any port {port.replace('-', ':')} proto tcp" if port else ""
        return f"`sudo ufw allow from {network}{wanted}`"
    family = "ip6" if ":" in network else "ip"
    wanted = f" tcp dport {port}" if port else ""
    rule = f"inet filter input {family} saddr {network}{wanted} accept"
    return f"`sudo nft insert rule {rule}`, with the table and chain of `sudo nft list ruleset`"


def _firewall(machine: MachineFacts) -> str:
    return machine.security.firewall if isinstance(machine.security, Security) else ""
