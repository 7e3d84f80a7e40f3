"""A machine of the job cannot be reached from another one.

What you see   `No route to host`, `Connection timed out` or `Connection refused` for one address,
               from the store (`client socket has failed to connect`), from Gloo
               (`connectFullMesh failed`) or from NCCL (`socketPollConnect: connect to … returned …,
               retrying (12/34)`). NCCL before 2.24 says `Software caused connection abort` for all
               of them. A firewall that drops looks like a hang: NCCL alone tries for a minute.
Why            Besides MASTER_PORT, NCCL and Gloo listen on ports that the kernel picks, so every
               pair of machines needs all TCP ports open between them, both ways. Silence means
               dropped packets, a machine that is off, or an address of another network. `No route`
               is a missing route, no answer to ARP, or a firewall that rejects. Refused means that
               a machine answered and nobody listens: the process is gone, or a firewall resets.
How to be sure From the one that called: `ip route get ADDRESS`, then `nc -vz ADDRESS PORT` while
               something listens there (`nc -l PORT` on the other). `holdfast check` does it for
               the master's port. In both directions: a rule may stop one only.
Fix            Open all TCP ports between the machines of the job (a rule for the subnet, a security
               group that admits itself), or choose the network they share with
               NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME. If the peer was dead before: its own log
               tells why.
Sources        NVIDIA/nccl src/os/linux.cc: socketConnectCheck, what is retried
               NVIDIA/nccl src/misc/socket.cc at v2.22.3-1: exceeded retries, exceeded timeouts
               torch/csrc/distributed/c10d/socket.cpp: SocketConnectOp
               pytorch/gloo gloo/transport/tcp/helpers.h: timed out connecting
               torvalds/linux net/ipv4/icmp.c: what a rejected connection reports
"""

from __future__ import annotations

import errno
from collections import Counter

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.patterns import connections, name_resolution, watchdog
from holdfast.analysis.logs.patterns.connections import Attempt
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import addresses
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis

FAULT = Fault(
    code="HOLD205",
    slug="peer-unreachable",
    smoke_fix="look for the rule that stops it: `nft list ruleset` or `iptables -S` (as root)",
)
# In the smoke test a rank always listens there, so it is not 'no rank is up yet'.
FAULT.errno(
    errno.ECONNREFUSED,
    "refused: a firewall rule rejects it, or the address leads to where nothing listens",
)
FAULT.errno(
    errno.ETIMEDOUT, "nothing came back: packets are dropped (a firewall rule) or lead nowhere"
)
FAULT.errno(
    errno.EHOSTUNREACH, "no way to that host: no neighbour answers, or a firewall rule rejects it"
)
FAULT.errno(errno.ENETUNREACH, "no route leads to that network")
FAULT.errno(errno.ECONNABORTED, "the connection was given up before it was established")
FAULT.errno(
    errno.ECONNABORTED,
    "NCCL before 2.24 says so in place of the true error, which was 'refused' (nothing listens at "
    "the address the peer gave) or 'timed out' (packets are dropped)",
    nccl_before="2.24",
)
FAULT.log_patterns.extend(connections.OWN)

MEANING = {
    connections.NO_WAY: "there is no way to it: no route, no answer on the last hop, or a firewall "
    "that rejects",
    connections.SILENT: "nothing came back: packets are dropped on the way, the machine is off, or "
    "it is an address of another network",
    connections.REFUSED: "a machine answered and nobody listens there: its process is gone, or a "
    "firewall resets",
    connections.MASKED: "NCCL before 2.24 says this for a refused call as for a silent one",
    "": "the log does not say how the calls ended",
}
SURE = {
    connections.NO_WAY: 0.85,
    connections.SILENT: 0.6,
    connections.REFUSED: 0.5,
    connections.MASKED: 0.55,
    "": 0.3,
}
STORE_SURE = {
    connections.NO_WAY: 0.75,
    connections.SILENT: 0.55,
    connections.REFUSED: 0.25,
    "": 0.3,
}
"""of a store that cannot be reached 'nobody listens there' is the likelier reading"""
CLUTTERED = 0.35
"""somebody else tells of trouble of their own: a refusal may be no more than its echo"""


@FAULT.explain
def one_address_is_out_of_reach(wreckage: Wreckage) -> Diagnosis | None:
    failed = [one for one in connections.attempts(wreckage) if _leads_away(one)]
    if name_resolution.unresolved(wreckage):
        failed = [one for one in failed if one.kind]  # its name was not found: nobody was called
    if not failed:
        return None
    address = Counter(one.address for one in failed).most_common(1)[0][0]
    chosen = [one for one in failed if one.address == address]
    kind = connections.commonest(one.kind for one in chosen)
    return FAULT.diagnosis(
        f"{_callers(chosen)} could not connect to {chosen[0].where}: {MEANING[kind]}",
        confidence=_confidence(wreckage, chosen, kind),
        seen=[one.seen for one in chosen],
        culprit=Culprit(what=f"the way to {address}" if address else ""),
        victims=[one.seen.rank for one in chosen if one.seen.rank is not None],
        fix="open all TCP ports between the machines of the job, both ways, or choose a network "
        "they share (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME)",
        next=sightings.command("ip route get {}", address) or "ip route",
        unknown=_unknown(kind, address),
    )


@FAULT.explain
def gloo_did_not_come_together(wreckage: Wreckage) -> Diagnosis | None:
    """The line is cut, or is of a torch whose Gloo does not say whom it called."""
    seen = wreckage.seen(watchdog.GLOO_MESH)
    told = connections.attempts(wreckage) or wreckage.seen(name_resolution.GLOO_NAME)
    if not seen or told or wreckage.roots():
        return None
    return FAULT.diagnosis(
        "Gloo could not connect every rank with every other, and does not say which pair failed: "
        "a firewall between ephemeral ports, an interface that does not lead to the others, or a "
        "rank that died meanwhile",
        confidence=0.35,
        seen=seen,
        culprit=Culprit(),
        fix="name the interface that the machines share (GLOO_SOCKET_IFNAME), and open all TCP "
        "ports between them, both ways",
        next="getent ahosts $(hostname)",
        unknown=["whom it called, and whether that rank was alive"],
    )


def _leads_away(attempt: Attempt) -> bool:
    """Loopback is another matter: a wrong interface, or a name that resolves wrongly."""
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
    sure = STORE_SURE if layers == {connections.STORE} else SURE
    confidence = sure.get(kind, 0.3)
    if wreckage.roots(but=[FAULT.slug]):
        return min(confidence, CLUTTERED)
    return confidence


def _unknown(kind: str, address: str) -> list[str]:
    if kind == connections.NO_WAY:
        return []
    whose = f"the log of the process at {address}" if address else "the other side's log"
    return [f"whether it was still alive then: {whose} would tell"]
