"""Two interfaces of this machine are in the same subnet.

What you see   NCCL logs the right interface and yet hangs or is slow; one direction works, the
               other does not; traffic appears on an interface that no setting selected.
Why            A subnet has one best route. With two interfaces in it the kernel sends everything
               for that subnet through one of them, whatever address the socket was bound to, and
               Linux answers ARP for either address on both (ARP flux), so replies come back on the
               other. Switch filters, rp_filter or the slower of the two links then break or slow
               the connection. NCCL binds only its listening side.
How to be sure `ip route get PEER` must leave through the interface that NCCL uses, and `ip rule`
               shows whether policy routing separates them. `holdfast check` on several nodes asks
               each kernel by which interface it would send to each of the others.
Fix            Give every interface its own subnet, or set up source-based rules (`ip rule add from
               ADDRESS table N`) with net.ipv4.conf.all.arp_ignore=1 and arp_announce=2. A smaller
               metric on the preferred route helps one direction only. Several InfiniBand rails in
               one subnet are common and work over RDMA, which does not use the IP routes.
Known limits   On one machine holdfast reads addresses, not policy routing: two interfaces that
               rules separate correctly are reported too. In a log, one subnet is guessed from the
               addresses, because NCCL prints no netmask.
Sources        https://github.com/NVIDIA/nccl/issues/1580
               https://github.com/NVIDIA/nccl/issues/1269
               https://github.com/NVIDIA/nccl/pull/1782 (only the listening side is bound)
               https://docs.kernel.org/networking/ip-sysctl.html (arp_ignore, arp_announce)
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import NamedTuple

from holdfast import shell_words, text
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import connections, nccl
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import Interface, MachineFacts, known
from holdfast.analysis.nodes import NodesFacts, announced, ways
from holdfast.analysis.nodes.ways import RouteDetour
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD208",
    slug="overlapping-subnets",
    related=("wrong-nic", "slow-nic", "peer-unreachable"),
)

MARTIAN = FAULT.log_pattern(
    "martian",
    r"martian source (?P<address>[\d.]+) from (?P<peer>[\d.]+), on dev (?P<interface>\S+)",
    anchors=("martian source",),
    example="Nov 15 01:02:03 node-a kernel: IPv4: martian source 192.0.2.2 from 192.0.2.7, on dev "
    "eth1",
    role=Role.CONFIRMATION,
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SubnetMember(NamedTuple):
    """An address of an interface, and the subnet it is in."""

    interface: Interface
    address: str
    network: Network


@FAULT.check(needs=("interfaces",))
def two_interfaces_share_a_subnet(facts: MachineFacts) -> Finding | list[Finding]:
    members = [m for i in known(facts.interfaces) for m in _members(i)]
    shared = {
        subnet: group
        for subnet, group in _by_widest_subnet(members).items()
        if len({m.interface.name for m in group}) > 1
    }
    if not shared:
        return FAULT.ok("every interface has its own subnet")
    speak = FAULT.warning if facts.plan.multi_node else FAULT.note
    unaffected = "" if facts.plan.multi_node else "; a job on one machine is not affected"
    return [
        speak(
            f"{', '.join(sorted({m.interface.name for m in group}))} share the subnet {subnet}",
            reason="the kernel sends everything for this subnet through one of them, whichever "
            "NCCL chose; harmless if routing rules separate them, or if only RDMA uses them"
            f"{unaffected}",
            evidence=[
                Evidence(quote=f"{m.interface.name} has {m.address}", source="ip -br addr")
                for m in group
            ],
            fix="see which one is used with `ip route get PEER`; give each its own subnet, or "
            "separate them with `sudo ip rule add from ADDRESS table N`",
        )
        for subnet, group in shared.items()
    ]


def _members(interface: Interface) -> list[SubnetMember]:
    """Addresses that add a route to a subnet: not loopback, link-local or a single address."""
    if interface.kind == "loopback" or not interface.running:
        return []
    members = []
    for address in interface.addresses:
        own = ipaddress.ip_interface(f"{address.ip.partition('%')[0]}/{address.prefix}")
        if not own.is_link_local and address.prefix < own.max_prefixlen:
            members.append(SubnetMember(interface, f"{address.ip}/{address.prefix}", own.network))
    return members


def _by_widest_subnet(members: list[SubnetMember]) -> dict[Network, list[SubnetMember]]:
    """Two CIDR blocks either nest or are disjoint, so the widest one can stand for all in it."""
    groups: dict[Network, list[SubnetMember]] = {}
    for member in sorted(members, key=lambda m: m.network.prefixlen):
        widest = next((n for n in groups if n.overlaps(member.network)), member.network)
        groups.setdefault(widest, []).append(member)
    return {subnet: _without_bridge_ports(group) for subnet, group in groups.items()}


def _without_bridge_ports(group: list[SubnetMember]) -> list[SubnetMember]:
    """The veth ends of containers may share the subnet of the bridge they are attached to."""
    if any(m.interface.kind == "bridge" for m in group):
        return [m for m in group if m.interface.kind != "veth"]
    return group


@FAULT.check_nodes
def routes_leave_by_another_interface(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node")
    every, gaps = announced.announced(facts)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    routes = known(facts.routes)
    if not routes or not every:
        return unknown or FAULT.skipped("no route between two nodes was looked up")
    alike: dict[tuple[str, str], list[RouteDetour]] = {}
    for one in ways.detours(facts, every, routes):
        alike.setdefault((one.route.interface, one.announced), []).append(one)
    found = [_detour(group) for group in alike.values()]
    if found:
        return [*found, *unknown]
    return [FAULT.ok("what nodes send leaves by the interface that their ranks announce"), *unknown]


def _detour(group: Sequence[RouteDetour]) -> Finding:
    first = group[0]
    leaves, listens = first.route.interface, first.announced
    sources = sorted({one.route.source for one in group})
    overlap = len(first.overlapping) > 1
    cause = (
        f"{text.names(first.overlapping)} are in one subnet, which has one best route"
        if overlap
        else f"a route or rule that is more specific than the subnet of {listens}"
    )
    return FAULT.warning(
        f"{text.names(sources)} {text.plural(sources, 'sends', 'send')} to other nodes by "
        f"{leaves}, while ranks announce {listens}",
        reason=f"{cause}. Both directions of a connection then take different links: the slower "
        "one, a switch filter or rp_filter may break it",
        evidence=[
            Evidence(
                quote=f"{one.route.source}: {one.route.target.address} of {one.route.target.node} "
                f"dev {one.route.interface} src {one.route.local_address}",
                source="ip route get",
                host=one.route.source,
            )
            for one in group[:SHOWN]
        ],
        fix=f"give {text.name(leaves)} and {text.name(listens)} subnets of their own, or announce "
        "the one that is used: "
        f"`export {shell_words.setting('NCCL_SOCKET_IFNAME', f'={leaves}')}` on "
        f"{text.names(sources)}",
        host=sources[0] if len(sources) == 1 else "",
    )


@FAULT.explain
def packets_arrived_on_another_interface(wreckage: Wreckage) -> Diagnosis | None:
    strays = wreckage.seen(MARTIAN)
    failed = connections.attempts(wreckage, connections.NCCL, connections.GLOO)
    pair = _two_in_one_subnet(wreckage)
    if not strays and not (pair and failed):
        return None
    what = strays[0].fields["interface"] if strays else " and ".join(pair)
    peer = strays[0].fields["peer"] if strays else failed[0].address
    reason = (
        f"the kernel dropped packets from {peer} because they arrived on {what}, where it does not "
        "expect them"
        if strays
        else f"NCCL uses {what}, whose addresses look like one subnet, and connections failed: the "
        "kernel sends all traffic for a subnet through one interface, whichever NCCL chose"
    )
    return FAULT.diagnosis(
        reason,
        confidence=0.6 if strays and failed else 0.4 if strays else 0.3,
        seen=[*strays, *(one.seen for one in failed)],
        culprit=Culprit(what=what),
        fix="give every interface its own subnet, or add rules by source address (`sudo ip rule "
        "add from ADDRESS table N`)",
        next=shell_words.command("ip route get {}; ip rule", peer) or "ip rule",
    )


def _two_in_one_subnet(wreckage: Wreckage) -> list[str]:
    """Two interfaces in one NCCL line whose addresses differ in the last number only."""
    for seen in wreckage.seen(nccl.NET_USING):
        if seen.fields.get("transport") != "Socket":
            continue
        by_net: dict[str, list[str]] = {}
        for name, address in re.findall(r"\[\d+\]([\w.@-]+):([\d.]+)<", seen.fields["devices"]):
            by_net.setdefault(address.rpartition(".")[0], []).append(name)
        pair = next((names for names in by_net.values() if len(names) > 1), None)
        if pair:
            return pair
    return []
