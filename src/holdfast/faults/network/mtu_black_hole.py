"""Large packets are dropped on the path between two machines.

What you see   The group forms and small collectives work; the first large one hangs. Minutes later
               `Call to recv from … failed : Connection timed out` or `Call to send to …` on a
               connection that was already in use, or torch's watchdog, and every rank is alive.
               Pings work, ssh works until a long listing.
Why            Both ends use large frames (9000) while a hop between them carries 1500 and drops the
               rest silently: a switch port, a bridge, a tunnel, or a router whose 'fragmentation
               needed' is filtered. TCP negotiates a segment size from the two ends only. With
               offloads the pattern is not monotonic in the size: 4 KB may hang where 1 MB passes.
How to be sure Run `ping -M do -s 8972 PEER` (MTU 9000 minus 28) in both directions: 'message too
               long' at once is the local MTU and no fault; no reply while `-s 1472` passes is the
               black hole. `ip -br link` on both ends shows their MTU.
Fix            Use one MTU along the whole path: raise the hop in the middle, or lower both ends
               (`ip link set eth0 mtu 1500`). A workaround that costs speed:
               net.ipv4.tcp_mtu_probing=1.
Known limits   holdfast sends no probes between machines; from a log this is an inference, because a
               machine that died or lost packets looks the same.
Sources        https://docs.kernel.org/networking/ip-sysctl.html (tcp_mtu_probing)
               NVIDIA/nccl src/misc/socket.cc: socketProgressOpt
               https://github.com/NVIDIA/nccl/issues/1524
               https://github.com/NVIDIA/nccl-tests/issues/236
"""

from __future__ import annotations

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.patterns import nccl
from holdfast.analysis.logs.patterns.dead_connections import DIED_IN_USE, peer_of
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis

FAULT = Fault(
    code="HOLD204", slug="mtu-black-hole", related=("packet-loss", "network-partition", "slow-nic")
)
FAULT.log_patterns.append(DIED_IN_USE)

Sightings = tuple[Sighting, ...]

TOO_LONG = FAULT.log_pattern(
    "too-long",
    r"(?:send|write|connect|sendmsg|ping)\w*.*(?:EMSGSIZE|[Mm]essage too long)"
    r"|[Ff]rag(?:mentation)? needed and DF set \(mtu ?= ?(?P<mtu>\d+)\)",
    anchors=("EMSGSIZE", "essage too long", "needed and DF set"),
    example="From 192.0.2.1 icmp_seq=1 Frag needed and DF set (mtu = 1500)",
)


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
        next=sightings.shell_command("ping -M do -s 8972 -c 3 {}", peers[0])
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
