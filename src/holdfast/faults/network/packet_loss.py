"""Packets are lost on the path, and connections wait for retransmissions.

What you see   Collectives between machines are many times slower than within one, in bursts;
               retransmissions climb (`ss -ti`), and now and then a connection dies with
               `Connection timed out`. Kernel logs may show `NETDEV WATCHDOG: … transmit queue …
               timed out`, link flaps or CRC errors. On RoCE: retry counters and `status 12`.
               `holdfast run` names the path when steps have become slow, the kernel sends 2 % of
               the ranks' segments again, and datagrams of its own get lost too.
Why            A bad cable or transceiver, a congested or misconfigured switch port, a duplex
               mismatch, a full receive ring, or RoCE without a lossless class. TCP halves its
               speed at each loss, and a lost last packet costs a timeout of 200 ms or more.
How to be sure Run `ip -s link show eth0` and `ethtool -S eth0 | grep -iE 'err|drop|crc|discard'`
               twice, a minute apart: the difference counts. `ss -ti dst PEER` shows the
               retransmissions of each connection. `ping -f -c 10000 PEER` (root) measures the loss.
               `holdfast check` on several nodes sends small datagrams on every path and counts at
               both ends, so that it can name the direction.
Fix            Replace what the counters point to; enlarge rings with `ethtool -G`; for RoCE check
               PFC/ECN on NICs and switches. Longer timeouts only hide it.
Known limits   holdfast reads no interface counters. Some dozens of datagrams show a loss of a few
               per cent, not one in a thousand. Without a kernel line or a ping in the log this is a
               weak guess beside mtu-black-hole. In `run` it is always a notice: TCP sends again
               what is lost, and the job goes on, slowly.
Sources        torvalds/linux net/sched/sch_generic.c: dev_watchdog
               https://man7.org/linux/man-pages/man8/ss.8.html
               https://man7.org/linux/man-pages/man8/ethtool.8.html
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import shell_words, text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import BreakPath
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import path_probes, path_signs, sick_paths
from holdfast.analysis.job.path_signs import KernelSign
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns.dead_connections import DIED_IN_USE
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import known
from holdfast.analysis.nodes import NodesFacts, loss, pattern
from holdfast.analysis.nodes.loss import DirectedLoss
from holdfast.analysis.nodes.pattern import Pair, PathGroup, Shape
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import SHOWN, Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD207",
    slug="packet-loss",
    related=("mtu-black-hole", "slow-nic", "network-partition", "ib-misconfig"),
    traits=RunTraits(priority=298, never_acts=True, survives_steps=True, whole_job=True),
)

NIC_STALLED = FAULT.log_pattern(
    "nic-stalled",
    r"NETDEV WATCHDOG: (?:CPU: \d+: )?(?P<interface>[\w.@-]{1,64})\b.*transmit queue \d+ timed out"
    r"|(?<![\w.@-])(?P<flapping>[\w.@-]{1,64}): .{0,100}(?:rx_crc_errors|CRC errors|link flap"
    r"|symbol errors?)",
    anchors=("NETDEV WATCHDOG", "rx_crc_errors", "CRC errors", "link flap", "symbol error"),
    example="Nov 15 01:02:03 node-a kernel: NETDEV WATCHDOG: ens3 (mlx5_core): transmit queue 4 "
    "timed out 5012 ms",
    role=Role.CONFIRMATION,
)
LOST = FAULT.log_pattern(
    "ping-loss",
    r"packets transmitted, \d+ (?:packets )?received,.*?(?P<percent>\d+(?:\.\d+)?)% packet loss",
    anchors=("% packet loss",),
    example="100 packets transmitted, 87 received, 13% packet loss, time 101376ms",
    role=Role.CONFIRMATION,
)


SEVERE = 0.1
"""from this share on TCP hardly moves, and a collective runs into its timeout"""


@FAULT.check_nodes
def packets_are_lost_between_nodes(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: there is no path to try")
    counted = loss.directed(known(facts.losses))
    if not counted.by_pair:
        return FAULT.skipped("no datagram arrived on any path: UDP is blocked, or nothing passes")
    lossy = counted.beyond_chance()
    if lossy:
        groups = pattern.smallest(lossy, counted.by_pair)
        return [_lossy(group, lossy) for group in groups]
    lost = sum(one.lost for one in counted.by_pair.values())
    sent = sum(one.sent for one in counted.by_pair.values())
    return FAULT.ok(f"{lost} of {sent} small datagrams were lost, no more than by chance")


def _lossy(group: PathGroup, lossy: dict[Pair, DirectedLoss]) -> Finding:
    found = sorted((lossy[pair] for pair in group.pairs), key=lambda one: -one.rate)
    worst = found[0]
    speak = FAULT.error if worst.rate >= SEVERE else FAULT.warning
    share = worst.percent if len(found) == 1 else f"up to {worst.percent}"
    clean = " in that direction only" if len(group.pairs) == 1 and not group.nodes else ""
    return speak(
        f"{group.words} {group.verb('loses', 'lose')} {share} of small datagrams{clean}",
        reason=f"on an ordinary path {worst.lost} of {worst.sent} or more get lost in fewer than "
        "one of a thousand such checks. TCP sends again what is lost, and slows down each time",
        evidence=[_counted(one) for one in found[:SHOWN]],
        fix=_counters(group),
        host=group.host,
    )


def _counted(one: DirectedLoss) -> Evidence:
    return Evidence(
        quote=f"{one.pair[0]} → {one.pair[1]}: {one.lost} of {one.sent} did not arrive",
        source="small datagrams",
        host=one.pair[0],
    )


def _counters(group: PathGroup) -> str:
    ends = group.nodes or tuple(sorted({name for pair in group.pairs for name in pair}))
    return (
        f"compare the error counters a minute apart on {' and '.join(ends[:4])}: `ip -s link; "
        "ethtool -S eth0 | grep -iE 'err|drop|crc|discard'`; then cable, transceiver, switch port"
    )


# --- run -----------------------------------------------------------------------------------------


@FAULT.run
def segments_are_sent_again(scene: Scene) -> Verdict | None:
    """The kernel sends again what ranks sent, or waits for an answer; datagrams get lost too."""
    shown = [one for one in path_signs.of(scene).values() if one.lossy or one.stuck]
    lossy = {
        lost.pair: lost
        for sign in shown
        for pair in (sign.pair, sign.pair[::-1])
        if (seen := path_probes.tried(scene, pair)) and (lost := seen.loss) and not seen.failed
    }
    if not lossy or any(one.hole or one.is_unreachable for one in sick_paths.of(scene)):
        return None
    worst = max(lossy.values(), key=lambda one: one.rate)
    share = worst.percent if len(lossy) == 1 else f"up to {worst.percent}"
    signs = [one for one in shown if one.pair in lossy or one.pair[::-1] in lossy]
    return FAULT.verdict(
        f"{sick_paths.named(scene, lossy)}: {share} of small datagrams are lost, and "
        f"{_sent_again(signs)}: steps wait for what is sent again",
        ranks=(),
        paths=lossy,
        victims=sick_paths.victims(scene),
        certain=False,
        fix=_counters(PathGroup(Shape.PATHS, (), tuple(sorted(lossy)))),
        evidence=[
            *(_counted(one) for one in list(lossy.values())[:2]),
            *sick_paths.kernel_evidence(one for one in signs[:2] if one.stuck),
        ],
    )


def _sent_again(signs: Sequence[KernelSign]) -> str:
    again, sent = sum(one.retransmitted for one in signs), sum(one.sent for one in signs)
    if any(one.lossy for one in signs):
        return f"{again} of {sent} segments of the ranks were sent again in the last second"
    ranks = {rank for one in signs for rank in one.ranks}
    longest = max((one.unanswered for one in signs), default=0.0)
    verb = text.plural(ranks, "has", "have")
    return f"{text.ranks(ranks)} {verb} had no answer for {text.elapsed(longest)}"


# --- explain -------------------------------------------------------------------------------------


@FAULT.explain
def interface_lost_packets(wreckage: Wreckage) -> Diagnosis | None:
    seen = [
        *wreckage.seen(NIC_STALLED),
        *(s for s in wreckage.seen(LOST) if 0 < float(s.fields["percent"]) < 100),
    ]
    if not seen:
        return None
    first = seen[0]
    what = first.fields.get("interface") or first.fields.get("flapping", "")
    reason = (
        f"the kernel reported that {what} could not send its packets"
        if what
        else f"{first.fields['percent']}% of the packets of a ping were lost"
    )
    return FAULT.diagnosis(
        f"{reason}: connections over it become very slow, and fail when their retransmissions run "
        "out",
        confidence=0.6,
        seen=seen,
        culprit=Culprit(host=first.line.host, what=what or "path between the hosts"),
        fix="check cable, transceiver, switch port and ring sizes of this interface",
        next=shell_words.command("ethtool -S {} | grep -iE 'err|drop|crc|discard'", what)
        or "ip -s link",
    )


@FAULT.explain
def retransmissions_ran_out(wreckage: Wreckage) -> Diagnosis | None:
    """The same log line as for an MTU black hole, which is more likely if all worked before."""
    if wreckage.seen(NIC_STALLED, LOST):
        return None
    died = [one for one in wreckage.seen(DIED_IN_USE) if "No route" not in str(one.fields)]
    if not died or wreckage.roots(but=[FAULT.slug]):
        return None
    return FAULT.diagnosis(
        "an established connection timed out after all its retransmissions: packets were lost for "
        "a long time",
        confidence=0.3,
        seen=died,
        culprit=Culprit(what="path between the hosts"),
        fix="compare the error counters of the interfaces on both sides, one minute apart",
        next="ethtool -S eth0 | grep -iE 'err|drop|crc|discard'",
        unknown=["the error counters of cards and switches: the log of a job does not show them"],
    )


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(needs=("hosts",))
def lose_packets(rehearsal: Rehearsal) -> Injection:
    ends = hosts.store_host(rehearsal.job), hosts.other_host(rehearsal)
    return Injection(
        does=f"30 % of the packets between {text.names(ends)} are lost {rehearsal.when}, until it "
        "was named",
        act=BreakPath(ends=ends, how="loss", amount=30),
        then=Then.GOES_ON,
        culprits=(),
        hosts=ends,
        lifted=True,
    )
