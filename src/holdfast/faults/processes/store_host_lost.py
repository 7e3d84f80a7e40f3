"""The process that holds the store was lost.

What you see   `recvValue failed on SocketImpl … Connection was likely closed`, `Failed to check the
               "should dump" flag on TCPStore`, `Broken pipe`, RendezvousConnectionError: on every
               rank at once, often after the first real error, and so the last lines of the log.
               Under `holdfast run` every surviving node says within 10 s that it does not hear the
               node that coordinates and serves the store. When the lease is over it ends its ranks
               and joins again, and exits with 124 when the launcher there has ended, or at the
               join timeout; with `--rdzv-backend etcd` they elect another one and go on.
Why            The store runs in one process: rank 0, or the launcher on the first machine. When
               that process exits, all others lose the store, whatever the reason. It ends the job
               but is rarely the cause: usually rank 0 failed, or finished, and the store ended with
               it.
How to be sure Look at rank 0 and the launcher of the first machine, before these lines: an
               exception, a kill, an exit code 0. Suspect the machine itself only when they show
               nothing.
Fix            Fix what ended that process. Where the first machine may be taken away at any time,
               use `holdfast run --rdzv-backend etcd`, or a node that stays as endpoint.
Known limits   Without the log of rank 0 or of the first machine's launcher the cause stays unknown;
               the lines of the other ranks only show that the store was gone. A node that lost the
               coordinator cannot tell from there whether that machine is down or only cut off.
Sources        torch/csrc/distributed/c10d/TCPStore.cpp: the server lives in one process
               torch/csrc/distributed/c10d/Utils.hpp: 'Connection was likely closed'
               https://github.com/pytorch/pytorch/issues/131781
               https://docs.pytorch.org/docs/stable/elastic/rendezvous.html
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import LoseHost
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import lost_nodes
from holdfast.analysis.logs import blame
from holdfast.analysis.logs.patterns import peers, watchdog
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD706",
    slug="store-host-lost",
    related=("node-lost", "rank-exits-early", "endpoint-single-point", "network-partition"),
    traits=RunTraits(priority=130, about_nodes=True),
)
RESUME = (
    "start the job again once it is back, or without it; a launch with `--rdzv-backend etcd` "
    "outlives the loss of any one node"
)

_CLOSED = ("reset", "Broken pipe", "closed", "refused", "shut down", "0 bytes")


@FAULT.run
def host_of_the_store_is_gone(scene: Scene) -> Verdict | None:
    """Seen by a coordinator on another node."""
    lost = [node for node in lost_nodes.lost(scene) if node.serves_store]
    if not lost or not lost_nodes.is_cause(scene, lost):
        return None
    return FAULT.verdict(
        f"{lost_nodes.with_ranks(lost)}, which serves the store, was lost: "
        f"{lost_nodes.how(lost[0])}",
        ranks=lost_nodes.ranks_of(scene, lost),
        hosts=[node.name for node in lost],
        victims=lost_nodes.victims(scene, lost),
        certain=True,
        fix=f"look at {lost[0].name}: the end of its launcher's output, `last -x reboot shutdown "
        "| head -3`",
        evidence=lost_nodes.evidence(scene, lost),
    )


def coordinator_lost(
    *, coordinator: str, own: str, farewell: str, words: str, silent: float, answers: bool | None
) -> Verdict:
    """What a launcher says that has lost its coordinator, when that is all it knows. `answers`:
    whether the coordinator's machine does; None when that was not asked."""
    how = lost_nodes.how_it_went(farewell=farewell, words=words, silent=silent, answers=answers)
    return FAULT.verdict(
        f"node {coordinator}, which coordinates the job and serves its store, was lost: {how}; "
        f"{own} cannot go on without it",
        ranks=(),
        hosts=[coordinator],
        certain=True,
        fatal=True,
        fix=RESUME,
        evidence=[Evidence(quote=words or how, source="its launcher's connection")],
    )


def coordinator_not_heard(
    *, coordinator: str, own: str, silent: float, answers: bool | None
) -> Verdict:
    """Where the lease is longer than that: it may come back, and is waited for."""
    how = lost_nodes.how_it_went(farewell="silent", words="", silent=silent, answers=answers)
    return FAULT.verdict(
        f"node {coordinator}, which coordinates the job and serves its store: {how}; the ranks on "
        f"{own} run on meanwhile",
        ranks=(),
        hosts=[coordinator],
        certain=False,
    )


@FAULT.explain
def all_ranks_lost_store(wreckage: Wreckage) -> Diagnosis | None:
    """Only when nothing better explains how rank 0 ended."""
    known = blame.of(wreckage)
    lost = wreckage.seen(peers.STORE_LOST, peers.STORE_RESET, peers.RENDEZVOUS_LOST)
    fetched = [s for s in wreckage.seen(watchdog.STORE_GET) if _connection_was_closed(s)]
    seen = (*lost, *fetched)
    losers = {s.rank for s in seen if s.rank is not None}
    if not seen or known.explained or 0 in losers or _timed_out_before(wreckage, seen):
        return None
    first = wreckage.rank(0)
    if first is not None and (first.finished or first.dumped):
        return None
    if wreckage.seen(peers.RENDEZVOUS_LOST) and not losers:
        return _launcher_lost_store(wreckage, seen)
    return FAULT.diagnosis(
        f"{text.ranks(losers) if losers else 'the ranks'} lost the connection to the store, "
        "which runs in rank 0 or in the launcher of the first machine: that process exited, and "
        "nothing here says why",
        confidence=0.6 if len(losers) > 1 else 0.45,
        seen=seen,
        culprit=Culprit(rank=0, host=_store_host(seen), what="the host of the store"),
        victims=losers,
        fix=LOOK_THERE,
        ruled_out=blame.ruled_out(wreckage),
        unknown=("how rank 0 ended: its log is missing, or says nothing",),
    )


LOOK_THERE = (
    "look at rank 0 and at the launcher of the first machine, before these lines: what ended them "
    "ended the job; give those logs to `holdfast explain`"
)


def _launcher_lost_store(wreckage: Wreckage, seen: tuple[Sighting, ...]) -> Diagnosis:
    """The store of a c10d rendezvous is in the launcher of the endpoint's machine, not in a rank.
    A store that was called had been reached before."""
    called = any(f.function == "_call_store" for r in wreckage.raised for f in r.frames)
    return FAULT.diagnosis(
        "the launcher lost the connection to the rendezvous store, which the launcher on the "
        "endpoint's machine hosts: that launcher exited, or its machine or the path to it was "
        "lost; nothing here says which",
        confidence=0.6 if called else 0.35,
        seen=seen,
        culprit=Culprit(host=_store_host(seen), what="the launcher that hosts the store"),
        fix=LOOK_THERE,
        ruled_out=blame.ruled_out(wreckage),
        unknown=("how that launcher ended: its log is missing, or says nothing",),
    )


def _connection_was_closed(seen: Sighting) -> bool:
    return any(word in seen.fields.get("why", "") for word in _CLOSED)


def _timed_out_before(wreckage: Wreckage, lost: tuple[Sighting, ...]) -> bool:
    """After a timeout the processes exit one after the other, the store's among them."""
    timeouts = wreckage.seen(watchdog.WATCHDOG, watchdog.WAIT_TIMEOUT, watchdog.GLOO_TIMEOUT)
    return any(
        one.line.source == late.line.source and one.order < late.order
        for one in timeouts
        for late in lost
    )


def _store_host(seen: tuple[Sighting, ...]) -> str:
    """'remote=[node-a]:29500' in the socket's description."""
    for one in seen:
        _, found, rest = one.fields.get("socket", "").partition("remote=[")
        if found:
            return rest.partition("]")[0]
    return ""


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(needs=("hosts",))
def host_of_the_store_loses_power(rehearsal: Rehearsal) -> Injection:
    host = hosts.store_host(rehearsal.job)
    return Injection(
        does=f"{host}, which holds the store, loses power {rehearsal.when}; then the job is "
        "started again",
        act=LoseHost(host=host, power=True),
        then=Then.ENDS,
        culprits=(),
        hosts=(host,),
        beside=("network-partition", "launcher-killed"),  # the next run there finds out
        notice_within=10.0,
        join_timeout=15.0,
    )
