"""The master does not answer on its port.

What you see   Ranks print `The client socket has timed out`, `connect … failed` or
               `DistNetworkError` and give up minutes later; rank 0 says nothing, or
               `1/2 clients joined`.
Why            Three different things look alike. Refused: the machine is there and nobody
               listens: not up yet, already dead, or the wrong port. Silence: packets are dropped
               by a firewall, or the address is not the master's. Unreachable: no route, or a
               firewall that rejects. A late master is no fault: clients retry for the store's
               timeout (300 s for a plain TCPStore, 600 s under torchrun's static rendezvous), torch
               2.13 in all three cases.
How to be sure Start node rank 0 first, run `ss -ltn 'sport = :29500'` there, and `holdfast check`
               here again: now a refusal means the wrong host or port, silence the path.
               Under `holdfast run` and torchrun's c10d the launcher serves the store: a script
               that sets MASTER_ADDR, MASTER_PORT or `init_method='tcp://…'` itself sends its
               ranks where nobody will ever listen, rank 0 included.
Fix            Leave the address to the launcher. Several nodes: start rank 0's node; use the same
               address and port on every node; open the port, and the ephemeral ports that NCCL
               and Gloo use, between the machines of the job.
Sources        torch/csrc/distributed/c10d/TCPStore.cpp and socket.cpp: what is retried
               torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py: 600 s
               torvalds/linux net/ipv4/icmp.c: what a rejected connection reports
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.job import join, phrases
from holdfast.analysis.logs.patterns import connections, name_resolution, peers
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, known
from holdfast.analysis.scene import exits, stopped
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD104", slug="master-not-listening", traits=RunTraits(priority=230, needs_stall=True)
)

NO_WAY = {
    "EHOSTUNREACH": "no machine has this address on the last hop, or a firewall rejects: "
    "unless that changes, torch tries until the store's timeout, in vain",
    "ENETUNREACH": "this machine has no route to that network",
    "EACCES": "this machine itself forbids the connection (firewall or security module)",
    "EPERM": "this machine itself forbids the connection (firewall or security module)",
}
LONG_ENOUGH = 5.0
"""seconds in which a store that is there has answered many times over"""
LEAVE_IT = (
    "leave the address to the launcher: no MASTER_ADDR, MASTER_PORT or init_method in the script"
)


@FAULT.check(needs=("master_reach",))
def master_answers(facts: MachineFacts) -> Finding:
    if facts.master_reach is None:
        return FAULT.does_not_apply("the master is this machine, or none was named")
    reach = known(facts.master_reach)
    where = f"{reach.address} port {reach.port}"
    if not reach.error:
        return FAULT.ok(f"{where} answers")
    evidence = [Evidence(quote=f"connect to {where}: {reach.error}", source="connect(2)")]
    if reach.error == "ECONNREFUSED":
        return FAULT.note(
            f"nobody listens on {where} yet",
            reason="the machine is there and refused: right before rank 0 is started, wrong "
            "once it runs (then it is another host or port, or a firewall that resets)",
            evidence=evidence,
            fix=f"start node rank 0, then `holdfast check --only {FAULT.slug}` here again",
        )
    if reach.error == "ETIMEDOUT":
        return FAULT.warning(
            f"{where} stays silent",
            reason=f"nothing came back within {reach.seconds:.1f} s: a firewall drops the "
            "packets, the machine is off, or the address is not the master's",
            evidence=evidence,
            fix=f"`ping -c 3 {reach.address}`; if that answers, open TCP port {reach.port} on the "
            "master for this machine",
        )
    return FAULT.warning(
        f"{where} cannot be reached: {reach.error}",
        reason=NO_WAY.get(reach.error, "the connection failed for a reason of its own"),
        evidence=evidence,
        fix=f"see which way packets take: `ip route get {reach.address}`",
    )


@FAULT.run
def they_call_where_nobody_listens(scene: Scene) -> Verdict | None:
    """While they try. A late master is no fault, so this is never certain."""
    calling = [v for v in scene.ranks if _calls_in_vain(scene, v)]
    if not calling or exits.endings(scene):
        return None
    calling = [v for v in calling if _same_call(v, calling[0])]
    why, ranks, fix = _explain(scene, calling)
    if not ranks:
        return None  # they call where they were told to: it is not theirs, nor seen whose
    since = min(claim.at for v in calling if (claim := join.claim_of(v)))
    numbers = [v.rank for v in calling]
    verb = text.plural(numbers, "has", "have")
    return FAULT.verdict(
        f"{phrases.who(scene, numbers)} {verb} tried for "
        f"{text.elapsed(scene.now - since)} to reach a store at {_store(calling[0])}: {why}",
        ranks=ranks,
        victims=set(numbers) - set(ranks),
        certain=False,
        fix=fix,
        evidence=[_told(v) for v in calling],
    )


@FAULT.run
def they_called_in_vain(scene: Scene) -> Verdict | None:
    """They gave up, and nobody ended before who would explain it."""
    ended = exits.endings(scene)
    gave_up = [e for e in ended if join.gave_up_on_store(e)]
    if not gave_up or stopped.any_stopped(scene):
        return None
    served = any(_is_there(v, gave_up[0].view) for v in scene.ranks)
    if served or any(not join.gave_up_on_store(e) for e in exits.cause(scene)):
        return None
    trying = [v for v in scene.ranks if join.waits_to_join(v) and _same_call(v, gave_up[0].view)]
    why, ranks, fix = _explain(scene, [*(e.view for e in gave_up), *trying])
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{text.ranks(e.rank for e in gave_up)} found no store: {why}: "
        f"{phrases.how_it_ended(gave_up[0]).quote}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=fix,
        evidence=[phrases.how_it_ended(e) for e in gave_up],
    )


def _calls_in_vain(scene: Scene, view: RankView) -> bool:
    claim = join.claim_of(view)
    if claim is None or claim.serves or not join.waits_to_join(view):
        return False
    if not join.shown_connecting(view) or scene.now - claim.at < LONG_ENOUGH:
        return False
    return not any(_is_there(other, view) for other in scene.ranks)


def _is_there(other: RankView, caller: RankView) -> bool:
    """A rank of ours serves the store that this one calls, or did."""
    claim = join.claim_of(other)
    return (
        claim is not None
        and claim.serves
        and other.rank != caller.rank
        and _same_call(other, caller)
    )


def _same_call(one: RankView, other: RankView) -> bool:
    return join.same_place(_store(one), _store(other))


def _explain(scene: Scene, calling: Sequence[RankView]) -> tuple[str, list[int], str]:
    """Why nobody is there, whose doing that is, and what to do."""
    claims = [(v, claim) for v in calling if (claim := join.claim_of(v)) is not None]
    strayed = [v for v, c in claims if not join.same_place(c.store, c.given_store)]
    late = [v for v in join.not_come(scene) if v.rank == 0 and v.death is None]
    first = claims[0][1]
    elsewhere = join.host_of(first.store) != join.host_of(first.given_store)
    if late and not first.agent_store and not elsewhere:
        place = f"`py-spy dump --pid {late[0].pid}` shows where it is"
        return "it is not up yet: rank 0, which will serve it, has not come", [0], place
    if not strayed:
        return "nobody answers at the address that the launcher gave", [], LEAVE_IT
    given = f"the launcher's store is at {first.given_store or 'no address'}"
    if elsewhere:
        why = f"that is another host than the one given: {given}"
    elif first.agent_store:
        why = f"no rank will ever serve one there: {given}, and the script names another"
    else:
        why = f"no rank of this job serves one there: {given}"
    return why, [v.rank for v in strayed], LEAVE_IT


def _store(view: RankView) -> str:
    claim = join.claim_of(view)
    return claim.store if claim is not None else ""


def _told(view: RankView) -> Evidence:
    claim = join.claim_of(view)
    given = claim.given_store if claim else ""
    return Evidence(
        quote=f"rank {view.rank} calls {_store(view)}, was given {given}",
        source="its page",
        rank=view.rank,
    )


LIKELY = {connections.REFUSED: 0.6, connections.SILENT: 0.4, connections.NO_WAY: 0.25, "": 0.5}


@FAULT.explain
def the_store_was_called_in_vain(wreckage: Wreckage) -> Diagnosis | None:
    calls = connections.attempts(wreckage, connections.STORE)
    if not any(call.kind or call.address for call in calls) or name_resolution.unresolved(wreckage):
        return None
    kind = connections.commonest(call.kind for call in calls)
    where = next((call.where for call in calls if call.address), calls[0].where)
    own_trouble = wreckage.roots()
    confidence = LIKELY.get(kind, 0.4)
    if wreckage.seen(peers.RENDEZVOUS_LOST):
        confidence = min(confidence, 0.45)  # nobody may be meant to: see rendezvous-config
    return FAULT.diagnosis(
        f"nobody served the store at {where} while the others called: rank 0's machine was not "
        "started, started too late, ended first, or has another address or port"
        + (", and somebody tells of trouble of their own below" if own_trouble else ""),
        confidence=min(confidence, 0.3) if own_trouble else confidence,
        seen=[call.seen for call in calls],
        culprit=Culprit(what=where if calls[0].address else "the store of rank 0"),
        victims=[call.seen.rank for call in calls if call.seen.rank is not None],
        fix="start rank 0's node first, with the same address and port on every node; leave both "
        "to the launcher where there is one",
        next="ss -ltnp 'sport = :29500'",
        unknown=["what rank 0 did: its own log tells whether it ever listened"],
    )
