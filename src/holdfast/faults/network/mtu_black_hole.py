"""Large packets are dropped on the path between two machines.

What you see   The group forms and small collectives work; the first large one hangs. Minutes later
               `Call to recv from … failed : Connection timed out` or `Call to send to …` on a
               connection that was already in use, or torch's watchdog, and every rank is alive.
               Pings work, ssh works until a long listing. `holdfast run` names the path and the
               size that passes within 10 s of the first segment that gets no answer.
Why            Both ends use large frames (9000) while a hop between them carries 1500 and drops the
               rest silently: a switch port, a bridge, a tunnel, or a router whose 'fragmentation
               needed' is filtered. TCP negotiates a segment size from the two ends only. With
               offloads the pattern is not monotonic in the size: 4 KB may hang where 1 MB passes.
How to be sure Run `ping -M do -s 8972 PEER` (MTU 9000 minus 28) in both directions: 'message too
               long' at once is the local MTU and no fault; no reply while `-s 1472` passes is the
               black hole. `ip -br link` on both ends shows their MTU. `holdfast check` on several
               nodes sends such packets on every path, each way, and TCP messages of growing size;
               a packet counts as lost for its size only when loss of small ones cannot explain it.
Fix            Use one MTU along the whole path: raise the hop in the middle, or lower both ends
               (`ip link set eth0 mtu 1500`). A workaround that costs speed:
               net.ipv4.tcp_mtu_probing=1.
Known limits   From a log this is an inference, because a machine that died or lost packets looks
               the same. RDMA has an MTU of its own, which the check does not probe. `run` is
               certain only where ranks wait in a collective, the kernel shows their large segments
               unanswered, and a test over TCP hangs on large messages alone.
Sources        https://docs.kernel.org/networking/ip-sysctl.html (tcp_mtu_probing)
               NVIDIA/nccl src/misc/socket.cc: socketProgressOpt
               https://github.com/NVIDIA/nccl/issues/1524
               https://github.com/NVIDIA/nccl-tests/issues/236
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import shell_words, text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import BreakPath
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import sick_paths
from holdfast.analysis.logs.patterns import nccl
from holdfast.analysis.logs.patterns.dead_connections import DIED_IN_USE, peer_of
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import Unread, known
from holdfast.analysis.nodes import NodesFacts, differences, loss, path_size, pattern
from holdfast.analysis.nodes.path_size import SizeJudgement, SizeVerdict
from holdfast.analysis.nodes.pattern import Pair, PathGroup, Shape
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import SHOWN, Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD204",
    slug="mtu-black-hole",
    related=("packet-loss", "network-partition", "slow-nic"),
    traits=RunTraits(priority=290, needs_stall=True, whole_job=True),
)
FAULT.log_patterns.append(DIED_IN_USE)

Sightings = tuple[Sighting, ...]

TOO_LONG = FAULT.log_pattern(
    "too-long",
    r"(?:send|write|connect|ping).{0,200}?(?:EMSGSIZE|[Mm]essage too long)"
    r"|[Ff]rag(?:mentation)? needed and DF set \(mtu ?= ?(?P<mtu>\d+)\)",
    anchors=("EMSGSIZE", "essage too long", "needed and DF set"),
    example="From 192.0.2.1 icmp_seq=1 Frag needed and DF set (mtu = 1500)",
)


# --- between nodes -------------------------------------------------------------------------------

MEANING = {
    SizeVerdict.HANGS: "TCP hangs as well: the group forms, and the first large collective never "
    "ends",
    SizeVerdict.VANISHES: "TCP messages of every size arrived, so that something on the path keeps "
    "its segments small (MSS clamping or tcp_mtu_probing); protocols over UDP, and RoCE, have no "
    "such help",
    SizeVerdict.UNTRIED: "whether TCP gets through was not tried",
    SizeVerdict.TOLD: "path MTU discovery works: a router says which size it takes and TCP obeys. "
    "Each new connection loses its first large packet",
    SizeVerdict.TCP_HANGS: "packets of every size arrive one by one, so it is not the MTU: a "
    "middlebox or an offload that does not work are possible; undecided",
}


@FAULT.check_nodes
def large_packets_do_not_arrive(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: there is no path to try")
    seen = known(facts.sizes)
    lost = loss.directed(() if isinstance(facts.losses, Unread) else facts.losses)
    judged = path_size.judge_all(facts, seen, lost)
    findings = [
        _hole(judgements, group)
        for judgements in _alike(judged)
        for group in _groups(judgements, judged)
    ]
    fine = [one for one in judged if one.verdict is SizeVerdict.FINE]
    if fine and not findings:
        findings.append(_fine(facts, fine))
    return [*findings, *_untold(judged)] or FAULT.skipped("no path between two nodes was tried")


def _alike(judged: list[SizeJudgement]) -> list[dict[Pair, SizeJudgement]]:
    """Paths with the same limit are one fault; RDMA's and another network's are others."""
    alike: dict[object, dict[Pair, SizeJudgement]] = {}
    for one in judged:
        if one.verdict in MEANING:
            key = (one.verdict, one.passes, one.fails, one.path.mtu, one.path.target.interface)
            alike.setdefault(key, {})[_pair(one)] = one
    return list(alike.values())


def _groups(judgements: dict[Pair, SizeJudgement], judged: list[SizeJudgement]) -> list[PathGroup]:
    return pattern.smallest(judgements, {_pair(one) for one in judged})


def _hole(judgements: dict[Pair, SizeJudgement], group: PathGroup) -> Finding:
    first = judgements[group.pairs[0]]
    verdict = first.verdict
    speak = FAULT.error if verdict is SizeVerdict.HANGS else FAULT.warning
    return (FAULT.note if verdict is SizeVerdict.TOLD else speak)(
        f"{group.words} {group.verb('drops', 'drop')} {_what(first)}",
        reason=MEANING[verdict]
        if first.fails or verdict is not SizeVerdict.HANGS
        else BY_TCP_ALONE,
        evidence=[_sizes_evidence(judgements[pair]) for pair in group.pairs[:SHOWN]],
        fix=_same_mtu(judgements, group) if verdict is not SizeVerdict.TCP_HANGS else TRY_BY_HAND,
        host=group.host,
    )


BY_TCP_ALONE = (
    "small messages arrive and large ones hang, as where a hop drops large packets; single "
    "datagrams did not get through, so that the size it takes is not known"
)
TRY_BY_HAND = (
    "turn offloads off on both ends to see whether they matter: `sudo ethtool -K eth0 tso off gso "
    "off gro off`"
)


def _what(one: SizeJudgement) -> str:
    """'packets of 1501 to 9000 bytes'"""
    if one.verdict is SizeVerdict.TOLD:
        most = one.path.told_mtu or one.passes
        return f"packets over {most} bytes, and {one.path.told_by or 'a router'} says so"
    if one.fails is None:
        return f"TCP messages from {text.size(one.message or 0)} on"
    return f"packets from {one.fails} bytes on: {one.passes} pass, and the MTU is {one.path.mtu}"


def _sizes_evidence(one: SizeJudgement) -> Evidence:
    path = one.path
    arrived = [str(probe.bytes) for probe in path.datagrams if probe.arrived]
    missing = [str(one.bytes) for one in path.datagrams if not (one.arrived or one.error)]
    tcp = "; TCP hung from " + text.size(one.message) + " on" if one.message else ""
    return Evidence(
        quote=f"{path.source} → {path.target.node} by {path.interface} (MTU {path.mtu}): "
        f"{_span(arrived)} arrived{f', {_span(missing)} did not' if missing else ''}{tcp}",
        source="datagrams with DF set",
        host=path.source,
    )


def _span(sizes: list[str]) -> str:
    if len(sizes) > 2:
        return f"{sizes[0]}-{sizes[-1]} bytes"
    return f"{' and '.join(sizes)} bytes" if sizes else "none"


def _same_mtu(judgements: dict[Pair, SizeJudgement], group: PathGroup) -> str:
    found = [judgements[pair] for pair in group.pairs]
    passes = min((one.passes for one in found if one.passes), default=1500)
    ends = {one.path.source: one.path.interface for one in found}
    ends |= {one.path.target.node: one.path.target.interface for one in found}
    interface = ends[min(ends)]
    return (
        f"raise the MTU of the hop between them, or lower both ends: `sudo ip link set "
        f"{shell_words.word(interface, 'INTERFACE')} "
        f"mtu {passes}` on {text.names(ends)}"
    )


def _untold(judged: list[SizeJudgement]) -> list[Finding]:
    """Paths that cannot be judged."""
    why = {
        SizeVerdict.LOSSY: "too much is lost to tell by size: see packet-loss",
        SizeVerdict.UNKNOWN: "nothing arrived: see peer-unreachable",
    }
    found: list[Finding] = []
    for verdict, reason in why.items():
        pairs = [_pair(one) for one in judged if one.verdict is verdict]
        if pairs:
            found.append(FAULT.skipped(f"{pattern.listed(pairs)}: {reason}"))
    return found


def _pair(one: SizeJudgement) -> Pair:
    return one.path.source, one.path.target.node


def _fine(facts: NodesFacts, fine: list[SizeJudgement]) -> Finding:
    if any(one.passes is None for one in fine):
        return FAULT.ok("TCP messages of every size arrive; datagrams are blocked on some paths")
    ends = _unequal_ends(facts, fine)
    unequal = differences.compare({name: str(mtu) for name, mtu in ends.items()})
    if unequal is None:
        mtus = sorted({one.path.mtu for one in fine})
        return FAULT.ok(f"packets of {text.names(map(str, mtus))} bytes, the MTU, arrive each way")
    return FAULT.note(
        f"the MTU differs between nodes: {unequal.listed}",
        reason="all that both ends of a path allow arrives, and TCP agrees on the smaller of the "
        "two: harmless, unless a hop between nodes with the larger one carries less",
        evidence=[
            Evidence(quote=f"{name}: MTU {mtu}", source="ip -br link", host=name)
            for name, mtu in sorted(ends.items())[:SHOWN]
        ],
    )


def _unequal_ends(facts: NodesFacts, fine: list[SizeJudgement]) -> dict[str, int]:
    """The MTU of both ends, by node, of paths whose ends differ: a node's own networks may."""
    ends: dict[str, int] = {}
    for path in (one.path for one in fine):
        target = path.target
        mtu = path_size.interface_mtu(facts.node(target.node).facts, target.interface)
        if mtu not in (None, path.mtu):
            ends |= {path.source: path.mtu, target.node: mtu}
    return ends


# --- run -----------------------------------------------------------------------------------------


@FAULT.run
def large_segments_get_no_answer(scene: Scene) -> Verdict | None:
    """The kernel's counters show that a rank's segments are not acknowledged; a try shows that
    small packets pass and large ones do not."""
    found = {one.pair: (one, hole) for one in sick_paths.of(scene) if (hole := one.hole)}
    if not found:
        return None
    sick = [one for one, _ in found.values()]
    holes = {pair: hole for pair, (_, hole) in found.items()}
    worst = next(iter(holes.values()))
    segment = max(one.segment for path in sick for one in path.sign.stuck)
    ranks = sorted({rank for one in sick for rank in one.sign.ranks})
    proven = any(hole.verdict is SizeVerdict.HANGS for hole in holes.values())
    return FAULT.verdict(
        f"{sick_paths.named(scene, holes)} drops {_what(worst)}; segments of {segment} bytes from "
        f"{text.ranks(ranks)} have had no answer for {text.elapsed(sick[0].sign.unanswered)}, "
        f"while small packets pass; {sick_paths.waiting(scene)}",
        ranks=(),
        paths=holes,
        victims=sick_paths.victims(scene),
        certain=proven and sick_paths.certain(scene, sick),
        fix=_same_mtu(holes, PathGroup(Shape.PATHS, (), tuple(sorted(holes)))),
        evidence=[
            *sick_paths.kernel_evidence(one.sign for one in sick[:2]),
            *(_sizes_evidence(hole) for hole in [*holes.values()][:2]),
        ],
    )


# --- explain -------------------------------------------------------------------------------------


@FAULT.explain
def connections_in_use_went_silent(wreckage: Wreckage) -> Diagnosis | None:
    died = wreckage.seen(DIED_IN_USE)
    if not died:
        return None
    formed = wreckage.seen(nccl.INIT_COMPLETE, nccl.CONNECTED)
    peers = sorted({peer_of(one) for one in died} - {""})
    before = "; the group had formed before, over the same network" if formed else ""
    return FAULT.diagnosis(
        f"established connections went silent{_between(died, peers)}{before}: small packets passed "
        "and large ones did not, as when a hop has a smaller MTU than both ends",
        confidence=_confidence(wreckage, died, formed),
        seen=[*died, *formed[:1]],
        culprit=Culprit(what="path between the hosts" + (f" ({peers[0]})" if peers else "")),
        victims=[one.rank for one in died if one.rank is not None],
        fix="use the same MTU along the whole path, or lower it on both ends: `sudo ip link set "
        "eth0 mtu 1500`",
        next=shell_words.command("ping -M do -s 8972 -c 3 {}", peers[0])
        if peers
        else "ip -br link",
        unknown=[
            "the MTU of each hop: only a ping with large packets, in both directions, can prove it"
        ],
    )


@FAULT.explain
def hop_rejected_a_large_packet(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(TOO_LONG)
    if not seen or wreckage.seen(DIED_IN_USE):
        return None
    return FAULT.diagnosis(
        "a packet was larger than the MTU of a hop on the path",
        confidence=0.45,
        seen=seen,
        culprit=Culprit(what="path between the hosts"),
        fix="use the same MTU along the whole path; `ping -M do -s 1472 -c 3 PEER` tests it",
        next="ip -br link",
    )


def _between(died: Sightings, peers: list[str]) -> str:
    ranks = sorted({one.rank for one in died if one.rank is not None})
    who = f" on rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}" if ranks else ""
    return who + (f" towards {', '.join(peers[:3])}" if peers else "")


def _confidence(wreckage: Wreckage, died: Sightings, formed: Sightings) -> float:
    """A machine that died looks the same; a rank's own error explains it better."""
    if any(end.code != 0 and not end.teardown and end.code < 0 for end in wreckage.exits):
        return 0.3
    if wreckage.roots(but=[FAULT.slug]):
        return 0.3
    no_route = any("No route" in one.fields.get("why", "") for one in died)
    if no_route:
        return 0.3
    living = {one.rank for one in died if one.rank is not None}
    if formed or (len(living) > 1 and living >= wreckage.members):
        return 0.7  # all ranks report it, so it is not the death of one
    return 0.6 if len(living) > 1 else 0.5


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(needs=("hosts",))
def lose_large_packets(rehearsal: Rehearsal) -> Injection:
    ends = hosts.store_host(rehearsal.job), hosts.other_host(rehearsal)
    return Injection(
        does=f"packets over 1500 bytes between {text.names(ends)}, whose MTU is 9000, vanish "
        f"{rehearsal.when}, until it was named",
        act=BreakPath(ends=ends, how="mtu", amount=1500),
        then=Then.RESTARTS,
        may_miss=True,
        culprits=(),
        hosts=ends,
        lifted=True,
    )
