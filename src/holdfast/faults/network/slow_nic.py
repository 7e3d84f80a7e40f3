"""Traffic between machines uses a link that is too slow.

What you see   The job runs, and scaling collapses as soon as a second machine joins: steps are
               several times longer, nccl-tests shows an `Avg bus bandwidth` of a tenth of a GB/s,
               `NET/Socket : Using` names a management interface. Collectives may hit torch's
               timeout although all ranks make progress.
Why            NCCL and Gloo use the first interface that their rules admit, not the fastest: often
               a 1 Gb/s management card. Or the card negotiated less than it can (a bad cable: 10000
               became 1000). NCCL assumes 10 Gb/s when the speed cannot be read, as is usual on
               virtual machines.
How to be sure `holdfast check --nnodes 2` names the interface or the RDMA ports that NCCL will use
               here, and their speed. By hand: `cat /sys/class/net/eth0/speed` (Mb/s; -1 is unknown,
               not slow) for the interface in NCCL's log, `cat /sys/class/infiniband/*/ports/*/rate`
               for RDMA, on every machine: the slowest limits all. `iperf3` or `ib_write_bw` between
               two machines measures it.
Fix            Set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the fast interface, or use RDMA
               where available; replace the cable of a card whose speed fell.
               `holdfast check --smoke` across nodes times pairs of them, and reads what NCCL 2.31
               and newer measures with ib_write_bw.
Known limits   `holdfast check` compares the speeds that the kernels report: of RDMA ports with
               others of the same model of card, and between nodes; what a card alone could reach is
               not known. Virtual interfaces report no speed. The smoke test compares pairs with
               their median: where all links are slow alike, none stands out, unless RDMA cards
               carry far more (slow-collectives). A running job's slow link is recognised in logs
               only: a kernel line about it, NCCL's report of a changed speed, or the result of
               nccl-tests.
Sources        NVIDIA/nccl src/transport/net_socket.cc: ncclNetSocketGetSpeed
               https://github.com/NVIDIA/nccl-tests (Avg bus bandwidth)
               https://docs.kernel.org/networking/ethtool-netlink.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from holdfast import shell_words, text
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import nccl, nccl_tests
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import (
    Interface,
    MachineFacts,
    RdmaPort,
    Unread,
    hca_choice,
    known,
    nccl_choice,
    rdma_evidence,
    rdma_health,
    rdma_use,
)
from holdfast.analysis.machine.nccl_diagnostics import NETWORK_CHECKS
from holdfast.analysis.nodes import NodesFacts, announced, differences, rdma
from holdfast.analysis.nodes.announced import Announced
from holdfast.analysis.nodes.smoke import nccl_faults, tests_of
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(code="HOLD209", slug="slow-nic", related=("wrong-nic", "rdma-unused", "packet-loss"))

LINK_UP = FAULT.log_pattern(
    "link-up",
    r"(?<![\w.@-])(?P<interface>[\w.@-]{1,64}):? (?:NIC )?[Ll]ink is [Uu]p(?:,| -|:| at)? ?"
    r"(?P<speed>\d+) ?"
    r"(?P<unit>[MG])b(?:ps|it/s|/s)",
    anchors=("ink is Up", "ink is up"),
    example="Nov 15 01:02:03 node-a kernel: igb 0000:06:00.0 eno1: igb: eno1 NIC Link is Up 100 "
    "Mbps Full Duplex, Flow Control: None",
    role=Role.CONTEXT,
)
SPEED_CHANGED = FAULT.log_pattern(
    "speed-fell",
    r"NET/IB : (?P<device>\S+) speed change detected: (?P<before>\d+) -> (?P<after>\d+) Mbps",
    anchors=("speed change detected",),
    example="node-a:411:498 [0] NCCL INFO NET/IB : mlx5_0:1 speed change detected: 400000 -> "
    "100000 Mbps",
    role=Role.CONFIRMATION,
)
SLOW_LINK = 10_000
"""Mb/s; below this a link between machines of one job is the bottleneck"""
SLOW_BUS = 1.25
"""GB/s, the most that 10 Gb/s can carry"""


FASTER = 10
"""times as fast: then another interface is the one that is meant for the job"""
MANAGEMENT = 8
"""times as slow as the fastest: a card that was built in for something else"""
INTERFACES = ("interfaces", "master_name", "own_name", "settings", "software")


@FAULT.check(needs=("rdma_cards", "rdma_ports", "settings"))
def rdma_port_is_slow(facts: MachineFacts) -> Finding | list[Finding]:
    if not facts.plan.multi_node:
        return FAULT.does_not_apply("one node: no traffic between machines")
    if not known(facts.rdma_ports) or rdma_use.switched_off(facts):
        return []  # socket_interface_is_slow
    ports = rdma_use.admitted(facts)
    cards = {card.name: card for card in known(facts.rdma_cards)}
    narrow = rdma_health.on_one_lane(ports)
    why = {port.name: "the link lost lanes: it has one of four" for port in narrow}
    for slow in rdma_health.slower_than_their_like(ports, cards):
        why[slow.port.name] = f"others of that kind of card run at {slow.usual.rate_text}"
    found = [_slow_port(port, why[port.name]) for port in ports if port.name in why]
    if facts.setting(hca_choice.HCA) is None:
        found += _for_management(ports)
    rates = ", ".join(sorted({port.rate_text or "an unknown rate" for port in ports}))
    return found or ([FAULT.ok(f"RDMA ports run at {rates}")] if ports else [])


def _slow_port(port: RdmaPort, why: str) -> Finding:
    return FAULT.warning(
        f"{port.name} runs at {port.rate_text} only",
        reason=f"{why}. The slowest link limits all ranks",
        evidence=rdma_evidence.rates([port]),
        fix="check cable, transceiver and switch port of that port; a link that came up at a lower "
        "speed is often cured by another cable",
    )


def _for_management(ports: Sequence[RdmaPort]) -> list[Finding]:
    fastest = max((port.rate or 0 for port in ports), default=0)
    slow = [
        port
        for port in ports
        if port.link_layer == rdma_use.ROCE and 0 < (port.rate or 0) * MANAGEMENT <= fastest
    ]
    if not slow:
        return []
    names = [port.name for port in slow]
    meant = [port.name for port in ports if port.rate == fastest]
    return [
        FAULT.note(
            f"NCCL will use {text.names(names)} as well, at least {MANAGEMENT} times slower than "
            "the others",
            reason="NCCL uses every active port; a card for management or storage should be left "
            "out",
            evidence=rdma_evidence.rates(slow),
            fix=f"`export {shell_words.setting(hca_choice.HCA, '=' + ','.join(meant))}`",
        )
    ]


@FAULT.check(needs=(*INTERFACES, "accelerators", "rdma_cards", "rdma_ports"))
def socket_interface_is_slow(facts: MachineFacts) -> Finding | list[Finding]:
    if not facts.plan.multi_node:
        return []  # rdma_port_is_slow says so
    if rdma_use.use(facts).ports:
        return []  # they carry the data
    if other := rdma_use.plugin(facts) or ("EFA" if rdma_use.is_efa_only(facts) else ""):
        return FAULT.does_not_apply(f"{other}: a plugin transfers the data")
    if not announced.has_nccl(facts):
        return FAULT.does_not_apply("NCCL is not installed, and there is no GPU")
    by_name = {interface.name: interface for interface in known(facts.interfaces)}
    taken = [by_name[t.name] for t in nccl_choice.sockets(facts).taken if t.name in by_name]
    slow = [one for one in taken if one.speed and one.speed < SLOW_LINK]
    if slow:
        return [_slow_interface(one, by_name.values()) for one in slow]
    speeds = ", ".join(
        f"{one.name} ({f'{one.speed} Mb/s' if one.speed else 'speed unknown'})" for one in taken
    )
    return FAULT.ok(f"NCCL sends data over {speeds or 'no interface'}")


def _slow_interface(slow: Interface, every: Iterable[Interface]) -> Finding:
    better = [
        one
        for one in every
        if one.kind == "physical"
        and one.running
        and one.addresses
        and (one.speed or 0) >= (slow.speed or 0) * FASTER
    ]
    best = max(better, key=lambda one: one.speed or 0, default=None)
    summary = f"NCCL will send data over {slow.name}, which runs at {slow.speed} Mb/s"
    evidence = [
        Evidence(quote=f"{one.name}: {one.speed} Mb/s", source=f"/sys/class/net/{one.name}/speed")
        for one in (slow, *([best] if best else ()))
    ]
    if best is None:
        return FAULT.note(
            summary,
            reason="exchanging gradients of a large model takes longer than the steps themselves",
            evidence=evidence,
            fix="if that card can do more, check cable and switch port: "
            f"`ethtool {shell_words.word(slow.name, 'INTERFACE')}`",
        )
    return FAULT.warning(
        summary,
        reason=f"{best.name} runs at {best.speed} Mb/s: {slow.name} looks like the management "
        "network",
        evidence=evidence,
        fix="if the other machines are on that network too: `export "
        f"{shell_words.setting('NCCL_SOCKET_IFNAME', f'={best.name}')}`",
    )


@FAULT.check_nodes
def rdma_rates_differ(facts: NodesFacts) -> Finding | Sequence[Finding]:
    nodes, _ = differences.of_each(facts, rdma.of_node)
    rates = {name: one.rates for name, one in nodes.items() if one.rates}
    unequal = differences.compare(rates)
    if unequal is None:
        return [FAULT.ok(f"RDMA ports run at {next(iter(rates.values()))}")] if rates else []
    odd = unequal.odd
    order = sorted(rates, key=lambda name: (name not in odd, name))
    return FAULT.warning(
        f"RDMA ports differ in speed: {unequal.listed}",
        reason="the slowest link limits all ranks",
        evidence=[
            Evidence(quote=f"{name}: {rates[name]}", source="/sys/class/infiniband", host=name)
            for name in order[:SHOWN]
        ],
        fix="check cable, transceiver and switch port of the slower ports, which `ibstat` lists",
        host=odd[0] if len(odd) == 1 else "",
    )


@FAULT.check_nodes
def link_is_slow(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if facts.smoke is None:
        return FAULT.does_not_apply("not asked for: add --smoke")
    smoke = known(facts.smoke)
    findings = [
        FAULT.warning(
            f"the link between {link.first} and {link.second} is slow",
            reason=link.why,
            evidence=[
                Evidence(quote=words, source="smoke test")
                for words in tests_of(smoke, [link.first, link.second])
            ],
            fix="look at the path between them: cables, switch ports, link speeds (`ethtool`)",
        )
        for link in smoke.isolation.slow_links
    ]
    findings += [
        FAULT.warning(
            f"NCCL measured a slow network: {line.words}",
            reason="NCCL ran ib_write_bw between the nodes when its communicator was made",
            evidence=[Evidence(quote=line.words, source="NCCL diagnostics", host=line.host)],
            fix="look at the port of that rank: `ibstat`, its cable and switch port",
        )
        for line in nccl_faults(smoke, NETWORK_CHECKS)
    ]
    timed = sum(bool(one.speed) for results in smoke.rounds for one in results)
    if findings:
        return findings
    if not timed:
        return FAULT.skipped("no pair of nodes was timed")
    return FAULT.ok(f"none of {timed} pairs is slower than half the median")


@FAULT.check_nodes
def announced_links_differ_in_speed(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: no traffic between machines")
    every, gaps = announced.announced(facts)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    wanted = announced.NCCL if any(a.program == announced.NCCL for a in every) else announced.GLOO
    used = {one.node: one for one in every if one.program == wanted}
    speeds = {
        node: interface.speed
        for node, one in used.items()
        if (interface := _interface(facts, one)) is not None and interface.speed
    }
    if len(speeds) < 2:
        return unknown or FAULT.skipped("the kernels do not know the speed of these interfaces")
    unequal = differences.compare({node: f"{speed} Mb/s" for node, speed in speeds.items()})
    if unequal is None:
        speed = next(iter(speeds.values()))
        return [FAULT.ok(f"the interfaces that ranks announce run at {speed} Mb/s each"), *unknown]
    return [_unequal_speeds(facts, used, speeds, unequal.listed), *unknown]


def _unequal_speeds(
    facts: NodesFacts, used: Mapping[str, Announced], speeds: Mapping[str, int], listed: str
) -> Finding:
    slowest = min(speeds.values())
    slow = sorted(node for node, speed in speeds.items() if speed == slowest)
    ports = [facts.node(node).facts.rdma_ports for node in slow]
    rdma = any(not isinstance(found, Unread) and found for found in ports)
    speak = FAULT.note if rdma else FAULT.warning
    aside = "; with RDMA it carries no data" if rdma else ""
    return speak(
        f"links differ in speed: {listed}",
        reason=f"the slowest link limits all ranks{aside}",
        evidence=[
            Evidence(
                quote=f"{node}: {used[node].interface} runs at {speeds[node]} Mb/s",
                source=f"/sys/class/net/{used[node].interface}/speed",
                host=node,
            )
            for node in sorted(speeds, key=lambda node: (speeds[node], node))[:SHOWN]
        ],
        fix=f"check cable, transceiver and switch port: `ethtool "
        f"{shell_words.word(used[slow[0]].interface, 'INTERFACE')}` on "
        f"{text.names(slow)}; or set NCCL_SOCKET_IFNAME to a faster interface there",
        host=slow[0] if len(slow) == 1 and len(speeds) > 2 else "",
    )


def _interface(facts: NodesFacts, one: Announced) -> Interface | None:
    interfaces = facts.node(one.node).facts.interfaces
    if isinstance(interfaces, Unread):
        return None
    return next((each for each in interfaces if each.name == one.interface), None)


@FAULT.explain
def link_speed_fell(wreckage: Wreckage) -> Diagnosis | None:
    fell = [
        s for s in wreckage.seen(SPEED_CHANGED) if int(s.fields["after"]) < int(s.fields["before"])
    ]
    if not fell:
        return None
    first = fell[0].fields
    return FAULT.diagnosis(
        f"{first['device']} fell from {first['before']} to {first['after']} Mb/s while the job "
        "ran: the slowest link limits all ranks",
        confidence=0.6,
        seen=fell,
        culprit=Culprit(host=fell[0].line.host, what=first["device"]),
        fix="check its cable, transceiver and switch port",
        next="ibstat; ethtool eth0",
    )


@FAULT.explain
def link_was_slow(wreckage: Wreckage) -> Diagnosis | None:
    if wreckage.seen(SPEED_CHANGED):
        return None
    slow = [s for s in wreckage.seen(LINK_UP) if _mbps(s) < SLOW_LINK]
    used = {s.fields["interface"] for s in wreckage.seen(nccl.BOOTSTRAP_USING)}
    slow = [s for s in slow if s.fields["interface"].rstrip(":") in used]
    measured = [
        s for s in wreckage.seen(nccl_tests.AVERAGE) if 0 < float(s.fields["rate"]) < SLOW_BUS
    ]
    if not slow and not (measured and _by_socket(wreckage) and len(wreckage.hosts) > 1):
        return None
    name = slow[0].fields["interface"] if slow else ""
    reason = (
        f"NCCL used {name}, which runs at {_mbps(slow[0])} Mb/s"
        if slow
        else f"nccl-tests measured {measured[0].fields['rate']} GB/s over sockets between machines"
    )
    return FAULT.diagnosis(
        f"{reason}: exchanging gradients takes longer than the steps themselves",
        confidence=0.5 if slow else 0.4,
        seen=slow or measured,
        culprit=Culprit(host=(slow or measured)[0].line.host, what=name or "NCCL over sockets"),
        fix="set NCCL_SOCKET_IFNAME to the fast interface, or use RDMA where available",
        next="ip -br address; cat /sys/class/net/*/speed",
    )


def _mbps(seen: Sighting) -> int:
    return int(seen.fields["speed"]) * (1000 if seen.fields["unit"] == "G" else 1)


def _by_socket(wreckage: Wreckage) -> bool:
    used = {
        s.fields.get("network") or s.fields.get("transport") for s in wreckage.seen(nccl.NET_USING)
    }
    return "Socket" in used
