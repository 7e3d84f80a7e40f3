"""One machine of the job cannot be reached from another.

What you see   `No route to host`, `Connection timed out` or `Connection refused` for one address,
               from the store (`client socket has failed to connect`), from Gloo (`connectFullMesh
               failed`) or from NCCL (`socketPollConnect: connect to … returned …, retrying
               (12/34)`). NCCL before 2.24 prints `Software caused connection abort` for all of
               them. A firewall that drops looks like a hang: NCCL alone tries for a minute.
               `holdfast run` names the path, and the direction where the kernels tell, about 8 s
               after a rank's connection stops being answered.
Why            Besides MASTER_PORT, NCCL and Gloo listen on ports that the kernel picks, so every
               pair of nodes needs all TCP ports open between them, in both directions. No reply
               means dropped packets, a machine that is off, or an address of another network. `No
               route` is a missing route, no answer to ARP, or a firewall that rejects. Refused
               means that a machine answered and nothing listens there: the process has exited, or a
               firewall resets.
How to be sure On the node that connected: `ip route get ADDRESS`, then `nc -vz ADDRESS PORT` while
               something listens there (`nc -l PORT` on the other). Test both directions: a rule may
               block one only. `holdfast check` does all of it when it runs on several nodes: every
               node connects to listeners of every other, on the master port and on one that the
               kernel picked.
Fix            Open all TCP ports between the nodes of the job (a rule for the subnet, a security
               group that allows itself), or choose the network they share with NCCL_SOCKET_IFNAME
               and GLOO_SOCKET_IFNAME. If the peer died before, its own log says why.
Known limits   `holdfast check` on one node tests the path to the master's port only. Between nodes
               it tries one ephemeral port: a rule for other single ports is not seen. Where one
               pair alone fails, which machine blocks it is not visible. The log of the connecting
               side does not show whether the peer was alive. `run` is certain only where ranks wait
               in a collective, their own connections stay unanswered for 7 s and a new connection
               fails too; ranks that use RDMA have no such connections, and get a notice.
Sources        NVIDIA/nccl src/os/linux.cc: socketConnectCheck, what is retried
               NVIDIA/nccl src/misc/socket.cc at v2.22.3-1: exceeded retries, exceeded timeouts
               torch/csrc/distributed/c10d/socket.cpp: SocketConnectOp
               pytorch/gloo gloo/transport/tcp/helpers.h: timed out connecting
               torvalds/linux net/ipv4/icmp.c: what a rejected connection reports
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Sequence

from holdfast import shell_words, text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import BlockPort, BreakPath
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import path_probes, sick_paths, suspected_paths
from holdfast.analysis.job.sick_paths import SickPath
from holdfast.analysis.logs.patterns import connections, name_resolution, watchdog
from holdfast.analysis.logs.patterns.connections import Attempt
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import addresses
from holdfast.analysis.nodes import (
    NodesFacts,
    Outcome,
    PortKind,
    Reached,
    blocked,
    owners,
    pattern,
    used_paths,
)
from holdfast.analysis.nodes.blocked import Ports
from holdfast.analysis.nodes.islands import is_partition
from holdfast.analysis.nodes.pattern import Pair, PathGroup, Shape
from holdfast.analysis.nodes.reachability import Matrix, islands, matrix
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import SHOWN, Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD205",
    slug="peer-unreachable",
    related=("master-not-listening", "wrong-nic", "container-network", "network-partition"),
    traits=RunTraits(priority=294, needs_stall=True, whole_job=True),
    smoke_fix="find the firewall rule that blocks it: `sudo nft list ruleset` or `sudo iptables "
    "-S`",
)
# In the smoke test a rank always listens there, so it is not 'no rank is up yet'.
FAULT.errno(
    errno.ECONNREFUSED,
    "refused: a firewall rule rejects it, or nothing listens at that address",
)
FAULT.errno(
    errno.ETIMEDOUT,
    "no reply: packets are dropped (a firewall rule) or the address belongs to another network",
)
FAULT.errno(
    errno.EHOSTUNREACH,
    "host unreachable: no neighbour answers for it, or a firewall rule rejects it",
)
FAULT.errno(errno.ENETUNREACH, "no route to that network")
FAULT.errno(errno.ECONNABORTED, "the connection was aborted before it was established")
FAULT.errno(
    errno.ECONNABORTED,
    "NCCL before 2.24 prints this instead of the true error, which was 'refused' (nothing listens "
    "at the address the peer gave) or 'timed out' (packets are dropped)",
    nccl_before="2.24",
)
FAULT.log_patterns.extend(connections.OWN)

MEANING = {
    connections.NO_WAY: "it cannot be reached: no route, no answer on the last hop, or a firewall "
    "that rejects",
    connections.SILENT: "no reply: packets are dropped on the path, the machine is off, or the "
    "address belongs to another network",
    connections.REFUSED: "a machine answered and nothing listens there: its process has exited, or "
    "a firewall resets",
    connections.MASKED: "NCCL before 2.24 prints this for a refused connection and for one without "
    "a reply",
    "": "the log does not say how the connections failed",
}
CONFIDENCE = {
    connections.NO_WAY: 0.85,
    connections.SILENT: 0.6,
    connections.REFUSED: 0.5,
    connections.MASKED: 0.55,
    "": 0.3,
}
STORE_CONFIDENCE = {
    connections.NO_WAY: 0.75,
    connections.SILENT: 0.55,
    connections.REFUSED: 0.25,
    "": 0.3,
}
"""lower: for a store it is more likely that no process listens there (master-not-listening)"""
WITH_OTHER_ERRORS = 0.35
"""at most; when another process reports an error of its own, a refusal may only follow from it"""


Failures = dict[Pair, list[Reached]]


@FAULT.check_nodes
def nodes_do_not_reach_each_other(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: there is no path to try")
    paths = matrix(facts)
    groups = islands(paths)
    if is_partition(groups):  # network-partition speaks of the paths between islands
        home = {name: number for number, island in enumerate(groups) for name in island}
        paths = paths.without([p for p in paths.by_pair if home[p[0]] != home[p[1]]])
    paths = used_paths.used(facts, paths)
    findings = [
        _blocked(facts, paths, ports, group, failures)
        for ports, failures in blocked.by_ports(paths, owners.store_hosts(facts)).items()
        for group in _groups(failures, paths)
    ]
    within = " within each island" if is_partition(groups) else ""
    if not findings:
        findings.append(FAULT.ok(f"all {len(paths.by_pair)} paths between nodes{within} pass"))
    return [*findings, *_not_tried(facts)]


def _not_tried(facts: NodesFacts) -> list[Finding]:
    """Where a node could not listen; its master port matters only where the store may be."""
    stores = owners.store_hosts(facts)
    by_cause: dict[tuple[str, PortKind, str], list[str]] = {}
    for one in facts.not_listening:
        if one.kind is PortKind.EPHEMERAL or not stores or one.node in stores:
            by_cause.setdefault((one.node, one.kind, one.why), []).append(one.address)
    return [
        FAULT.skipped(
            f"no path to the {kind.value} port of {node} ({text.names(ips)}) was tried: it could "
            f"not listen there ({why})",
            host=node,
        )
        for (node, kind, why), ips in by_cause.items()
    ]


def _groups(failures: Failures, paths: Matrix) -> list[PathGroup]:
    """Single paths apart by how they failed: each outcome has another cause."""
    groups: list[PathGroup] = []
    for group in pattern.smallest(failures, paths.by_pair):
        if group.shape is not Shape.PATHS:
            groups.append(group)
            continue
        by_outcome: dict[Outcome, list[Pair]] = {}
        for pair in group.pairs:
            by_outcome.setdefault(blocked.commonest(failures[pair]), []).append(pair)
        groups.extend(PathGroup(Shape.PATHS, (), tuple(pairs)) for pairs in by_outcome.values())
    return groups


def _blocked(
    facts: NodesFacts, paths: Matrix, ports: Ports, group: PathGroup, failures: Failures
) -> Finding:
    tries = [one for pair in group.pairs for one in failures[pair]]
    first = tries[0]
    unsure = ports is Ports.MASTER and not owners.store_hosts(facts)
    speak = FAULT.warning if unsure else FAULT.error
    return speak(
        f"{group.words} {group.verb('is', 'are')} blocked{_on_ports(ports, first)}: "
        f"{blocked.outcomes(tries)}{_way_back(group, paths)}",
        reason=f"{blocked.meaning(tries)}{_port_story(facts, ports, first)}",
        evidence=[blocked.connect_evidence(failures[pair][0]) for pair in group.pairs[:SHOWN]],
        fix=_open(facts, ports, group, first),
        host=group.host,
    )


def _way_back(group: PathGroup, paths: Matrix) -> str:
    if len(group.pairs) > 1 or group.nodes:
        return ""
    source, target = group.pairs[0]
    back = paths.by_pair.get((target, source), ())
    passes = back and all(one.outcome is Outcome.OK for one in back)
    return "; the way back passes" if passes else ""


def _on_ports(ports: Ports, one: Reached) -> str:
    if ports is Ports.EPHEMERAL:
        return " on ephemeral ports (the master port passes)"
    return f" on the master port {one.target.port}" if ports is Ports.MASTER else ""


def _port_story(facts: NodesFacts, ports: Ports, one: Reached) -> str:
    if ports is Ports.MASTER:
        needed = "" if owners.store_hosts(facts) else "; it matters if the master is there"
        return f"; ephemeral ports pass, so that it is a rule for this port{needed}"
    if ports is Ports.ALL:
        return ""
    span = blocked.ephemeral_range(facts.node(one.target.node).facts)
    chosen = f" ({span} on {one.target.node})" if span else ""
    return (
        f"; the ranks meet at the master port and then hang: NCCL and Gloo listen on ports that "
        f"the kernel picks{chosen}"
    )


def _open(facts: NodesFacts, ports: Ports, group: PathGroup, one: Reached) -> str:
    elsewhere = blocked.not_the_target(one)
    if elsewhere:
        return elsewhere
    where = {
        Shape.OUTBOUND: f"look at the firewall of {text.names(group.nodes)} first (`sudo nft list "
        "ruleset`), then let it in elsewhere: ",
        Shape.INBOUND: f"on {text.names(group.nodes)}: ",
        Shape.NODE: f"check the link of {text.names(group.nodes)} (`ip -br link`), then its "
        "firewall: ",
        Shape.PATHS: f"on {text.names({target for _, target in group.pairs})}: ",
    }.get(group.shape, "on every node: ")
    return f"{where}{blocked.opening(facts, one, ports)}"


# --- run -----------------------------------------------------------------------------------------


@FAULT.run
def rank_gets_no_answer_from_a_node(scene: Scene) -> Verdict | None:
    """The kernel's counters show it, and a try confirms it."""
    sick = [one for one in sick_paths.of(scene) if one.is_unreachable]
    if not sick or is_partition(path_probes.found_islands(scene)):
        return None
    pairs = sick_paths.directions(scene, {one.pair for one in sick})
    chosen = [one for one in sick if one.pair in pairs] or sick
    tries = [one for path in chosen if path.tried for one in path.tried.connects]
    groups = sick_paths.groups(scene, pairs)
    return FAULT.verdict(
        f"{sick_paths.named(scene, pairs)}: {_unanswered(chosen)}, and a new connection is "
        f"{blocked.outcomes(tries)}{_one_way(scene, pairs)}; {sick_paths.waiting(scene)}",
        ranks=(),
        hosts=groups[0].nodes if len(groups) == 1 and groups[0].host else (),
        paths=pairs,
        victims=sick_paths.victims(scene),
        certain=sick_paths.certain(scene, chosen),
        fix=blocked.not_the_target(tries[0])
        or f"find the rule or the hop that drops it: `sudo nft list ruleset` on "
        f"{' and '.join(chosen[0].pair)}, `tracepath -n "
        f"{shell_words.word(tries[0].target.address, 'ADDRESS')}`",
        evidence=[
            *sick_paths.kernel_evidence(one.sign for one in chosen[:2]),
            *(blocked.connect_evidence(one) for one in tries[:2]),
        ],
    )


def _unanswered(sick: Sequence[SickPath]) -> str:
    """'rank 2 has had no answer for 7.6 s'"""
    ranks = sorted({rank for one in sick for rank in one.sign.ranks})
    longest = max(one.sign.unanswered for one in sick)
    verb = text.plural(ranks, "has", "have")
    return f"{text.ranks(ranks)} {verb} had no answer for {text.elapsed(longest)}"


def _one_way(scene: Scene, pairs: set[Pair]) -> str:
    told = len(pairs) == 1 and sick_paths.is_one_way(scene, min(pairs))
    return "; what comes back arrives, so that one direction is broken" if told else ""


@FAULT.run
def connections_are_silent_while_others_pass(scene: Scene) -> Verdict | None:
    """A firewall that forgot them, or a rule for their ports: nothing else explains it."""
    sick = [one for one in sick_paths.of(scene) if one.is_unexplained]
    if not sick or any(one.is_unreachable for one in sick_paths.of(scene)):
        return None
    pairs = {one.pair for one in sick}
    return FAULT.verdict(
        f"{sick_paths.named(scene, pairs)}: {_unanswered(sick)} on connections in use, while new "
        "ones pass, small and large: a firewall or NAT on the path may have forgotten these "
        f"connections, or drops their ports; {sick_paths.waiting(scene)}",
        ranks=(),
        paths=pairs,
        victims=sick_paths.victims(scene),
        certain=False,
        fix=f"look for a stateful firewall between {' and '.join(sick[0].pair)} that was restarted "
        "or drops idle connections (`conntrack -L` on the hop)",
        evidence=sick_paths.kernel_evidence(one.sign for one in sick[:SHOWN]),
    )


@FAULT.run
def node_cannot_be_reached_while_all_wait(scene: Scene) -> Verdict | None:
    """The kernel tells nothing of the ranks' connections: RDMA, or no INET_DIAG."""
    if sick_paths.of(scene) or not suspected_paths.all_wait(scene):
        return None
    failed = [
        seen
        for pair in suspected_paths.unseen(scene)
        if (seen := path_probes.tried(scene, pair)) and seen.failed
    ]
    if not failed or is_partition(path_probes.found_islands(scene)):
        return None
    tries = [one for seen in failed for one in seen.connects]
    pairs = {seen.pair for seen in failed}
    return FAULT.verdict(
        f"{sick_paths.named(scene, pairs)}: a new connection is {blocked.outcomes(tries)}, while "
        f"{sick_paths.waiting(scene)}; the kernel does not show the ranks' own connections, so "
        "that this may not be what they wait for",
        ranks=(),
        paths=pairs,
        victims=sick_paths.victims(scene),
        certain=False,
        fix=blocked.not_the_target(tries[0])
        or f"`tracepath -n {shell_words.word(tries[0].target.address, 'ADDRESS')}` on "
        f"{tries[0].source}",
        evidence=[blocked.connect_evidence(one) for one in tries[:SHOWN]],
    )


def coordinator_does_not_hear(*, own: str, coordinator: str, words: str) -> Verdict:
    """What a launcher says that hears its coordinator and is not heard by it."""
    return FAULT.verdict(
        f"node {own} → node {coordinator}: what {own} sends does not arrive, while {own} still "
        f"hears {coordinator} ({words}): one direction of the path is broken",
        ranks=(),
        paths=[(own, coordinator)],
        certain=True,
        fatal=True,
        fix=f"find the rule or the hop that drops it: `sudo nft list ruleset` on {own} and "
        f"{coordinator}",
        evidence=[Evidence(quote=words, source="the coordinator's answers")],
    )


# --- explain -------------------------------------------------------------------------------------


@FAULT.explain
def address_could_not_be_reached(wreckage: Wreckage) -> Diagnosis | None:
    failed = [one for one in connections.attempts(wreckage) if _is_another_host(one)]
    if name_resolution.unresolved(wreckage):
        failed = [
            one for one in failed if one.kind
        ]  # its name did not resolve: there was no connection
    if not failed:
        return None
    address = Counter(one.address for one in failed).most_common(1)[0][0]
    chosen = [one for one in failed if one.address == address]
    kind = connections.commonest(one.kind for one in chosen)
    return FAULT.diagnosis(
        f"{_callers(chosen)} could not connect to {chosen[0].where}: {MEANING[kind]}",
        confidence=_confidence(wreckage, chosen, kind),
        seen=[one.seen for one in chosen],
        culprit=Culprit(what=f"the path to {address}" if address else ""),
        victims=[one.seen.rank for one in chosen if one.seen.rank is not None],
        fix="open all TCP ports between the nodes of the job, in both directions, or choose a "
        "network they share (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)",
        next=shell_words.command("ip route get {}", address) or "ip route",
        unknown=_unknown(kind, address),
    )


@FAULT.explain
def gloo_could_not_connect_all_ranks(wreckage: Wreckage) -> Diagnosis | None:
    """The line is cut, or is from a torch whose Gloo does not print the peer's address."""
    seen = wreckage.seen(watchdog.GLOO_MESH)
    told = connections.attempts(wreckage) or wreckage.seen(name_resolution.GLOO_NAME)
    if not seen or told or wreckage.roots():
        return None
    return FAULT.diagnosis(
        "Gloo could not connect all ranks with each other, and does not say which pair failed: a "
        "firewall blocks ephemeral ports, an interface does not reach the others, or a rank died "
        "meanwhile",
        confidence=0.35,
        seen=seen,
        culprit=Culprit(),
        fix="set GLOO_SOCKET_IFNAME to the interface that the nodes share, and open all TCP ports "
        "between them, in both directions",
        next="getent ahosts $(hostname)",
        unknown=["which peer it tried to reach, and whether that rank was alive"],
    )


def _is_another_host(attempt: Attempt) -> bool:
    """Not loopback: that is a wrong interface, or a name that resolves wrongly."""
    told = bool(attempt.kind or attempt.address)
    return told and not (addresses.is_loopback(attempt.address) or attempt.address == "localhost")


def _callers(chosen: list[Attempt]) -> str:
    ranks = sorted({one.seen.rank for one in chosen if one.seen.rank is not None})
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    hosts = sorted({one.seen.line.host for one in chosen if one.seen.line.host})
    if ranks:
        return f"{len(ranks)} ranks"
    return hosts[0] if len(hosts) == 1 else "a process of this job"


def _confidence(wreckage: Wreckage, chosen: list[Attempt], kind: str) -> float:
    layers = {one.layer for one in chosen}
    if layers == {connections.SSH}:
        return 0.85
    sure = STORE_CONFIDENCE if layers == {connections.STORE} else CONFIDENCE
    confidence = sure.get(kind, 0.3)
    if wreckage.roots(but=[FAULT.slug]):
        return min(confidence, WITH_OTHER_ERRORS)
    return confidence


def _unknown(kind: str, address: str) -> list[str]:
    if kind == connections.NO_WAY:
        return []
    where = f"the log of the process at {address}" if address else "the log of the peer"
    return [f"whether the peer was still alive: see {where}"]


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill("one-way", needs=("hosts",))
def lose_packets_one_way(rehearsal: Rehearsal) -> Injection:
    ends = hosts.store_host(rehearsal.job), hosts.other_host(rehearsal)
    return Injection(
        does=f"packets from {ends[0]} to {ends[1]} vanish {rehearsal.when}, not those back, until "
        "it was named",
        act=BreakPath(ends=ends, how="drop", one_way=True),
        then=Then.RESTARTS,
        slugs=("peer-unreachable", "node-lost", "network-partition"),
        culprits=(),
        hosts=ends,
        beside=("store-host-lost",),
        lifted=True,
    )


@FAULT.drill("firewall", needs=("hosts",))
def block_the_ports_of_ranks(rehearsal: Rehearsal) -> Injection:
    host = hosts.store_host(rehearsal.job)
    return Injection(
        does=f"from the start a firewall on {host} lets nothing in but the port where launchers "
        "meet",
        act=BlockPort(host=host, blocked="all but the endpoint"),
        then=Then.REFUSES,
        from_start=True,
        culprits=(),
        hosts=rehearsal.job.hosts,
    )


@FAULT.drill("endpoint", needs=("hosts",))
def block_the_endpoint(rehearsal: Rehearsal) -> Injection:
    host = hosts.store_host(rehearsal.job)
    return Injection(
        does=f"from the start a firewall on {host} drops what comes to the port where launchers "
        "meet, until it was named",
        act=BlockPort(host=host, blocked="endpoint"),
        then=Then.GOES_ON,
        from_start=True,
        culprits=(),
        hosts=rehearsal.job.hosts,
        beside=("ranks-missing",),
        lifted=True,
    )
