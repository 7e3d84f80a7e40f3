"""The master does not answer on its port.

What you see   Ranks print `The client socket has timed out`, `connect … failed` or
               `DistNetworkError` and give up minutes later; rank 0 prints nothing, or `1/2 clients
               joined`.
Why            Three different failures look alike. Refused: the machine is up and nothing listens
               there: rank 0 is not up yet, has exited, or uses another port. No reply: a firewall
               drops the packets, or the address is not the master's. Unreachable: no route, or a
               firewall that rejects. A late master does no harm: clients retry for the store's
               timeout (300 s for a plain TCPStore, 600 s under torchrun's static rendezvous), in
               torch 2.13 in all three cases.
How to be sure Start node rank 0 first, run `ss -ltn 'sport = :29500'` there, and run `holdfast
               check` here again: now a refusal means the wrong host or port, no reply means the
               path. Under `holdfast run` and torchrun's c10d the launcher serves the store: a
               script that sets MASTER_ADDR, MASTER_PORT or `init_method='tcp://…'` itself sends its
               ranks, rank 0 included, to an address where no process will ever listen.
Fix            Leave the address to the launcher. With several nodes: start rank 0's node; use the
               same address and port on every node; open the port, and the ephemeral ports that NCCL
               and Gloo use, between the nodes of the job.
Known limits   A log of the waiting ranks shows how their connections failed, not what rank 0 did.
               While a job runs this stays a notice until the ranks give up, because a late master
               looks the same.
Sources        torch/csrc/distributed/c10d/TCPStore.cpp and socket.cpp: what is retried
               torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py: 600 s
               torvalds/linux net/ipv4/icmp.c: what a rejected connection reports
               meta-pytorch/torchft: src/manager.rs (lighthouse)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast import shell_words, text
from holdfast.analysis.job import join, phrases
from holdfast.analysis.logs.patterns import connections, name_resolution, peers
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import MachineFacts, known
from holdfast.analysis.scene import exits, stopped
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD104",
    slug="master-not-listening",
    related=("wrong-master-address", "dns-failure", "peer-unreachable", "ranks-missing"),
    traits=RunTraits(priority=230, needs_stall=True),
)

UNREACHABLE = {
    "EHOSTUNREACH": "no machine answers for this address on the last hop, or a firewall rejects "
    "the connection: torch retries until the store's timeout and then fails",
    "ENETUNREACH": "this machine has no route to that network",
    "EACCES": "a firewall or security module on this machine forbids the connection",
    "EPERM": "a firewall or security module on this machine forbids the connection",
}
ANSWER_TIME = 5.0
"""seconds; a store that is up answers many times within that"""
USE_LAUNCHER_ADDRESS = (
    "leave the address to the launcher: remove MASTER_ADDR, MASTER_PORT and init_method from the "
    "script"
)


@FAULT.check(needs=("master_reach",))
def master_does_not_answer(facts: MachineFacts) -> Finding:
    if facts.master_reach is None:
        return FAULT.does_not_apply("the master is this machine, or no master is set")
    reach = known(facts.master_reach)
    where = f"{reach.address} port {reach.port}"
    if not reach.error:
        return FAULT.ok(f"{where} answers")
    evidence = [Evidence(quote=f"connect to {where}: {reach.error}", source="connect(2)")]
    if reach.error == "ECONNREFUSED":
        return FAULT.note(
            f"nothing listens on {where} yet",
            reason="the machine is up and refused the connection: expected before rank 0 is "
            "started, wrong once it runs (then it is the wrong host or port, or a firewall that "
            "resets)",
            evidence=evidence,
            fix=f"start node rank 0, then run `holdfast check --only {FAULT.slug}` here again",
        )
    if reach.error == "ETIMEDOUT":
        return FAULT.warning(
            f"{where} does not answer",
            reason=f"no reply within {reach.seconds:.1f} s: a firewall drops the packets, the "
            "machine is off, or the address is not the master's",
            evidence=evidence,
            fix=f"run `ping -c 3 {shell_words.word(reach.address, 'ADDRESS')}`; if that answers, "
            f"open TCP port {reach.port} on "
            "the master for this machine",
        )
    return FAULT.warning(
        f"{where} cannot be reached: {reach.error}",
        reason=UNREACHABLE.get(
            reach.error, "the connection failed with an error that holdfast has no explanation for"
        ),
        evidence=evidence,
        fix=f"check the route: `ip route get {shell_words.word(reach.address, 'ADDRESS')}`",
    )


@FAULT.run
def ranks_call_a_store_that_no_rank_serves(scene: Scene) -> Verdict | None:
    """While they try. A late master does no harm, so this is never certain."""
    calling = [v for v in scene.ranks if _cannot_reach_store(scene, v)]
    if not calling or exits.endings(scene):
        return None
    calling = [v for v in calling if _same_store(v, calling[0])]
    why, ranks, fix, fix_after_end = _explain(scene, calling)
    if not ranks:
        return None  # they call the given address: no rank is to blame
    since = min(claim.at for v in calling if (claim := join.claim_of(v)))
    numbers = [v.rank for v in calling]
    verb = text.plural(numbers, "has", "have")
    return FAULT.verdict(
        f"{phrases.who(scene, numbers)} {verb} tried for {text.elapsed(scene.now - since)} to "
        f"connect to a store at {_store(calling[0])}: {why}",
        ranks=ranks,
        victims=set(numbers) - set(ranks),
        certain=False,
        fix=fix,
        fix_after_end=fix_after_end,
        evidence=[_store_evidence(v) for v in calling],
    )


@FAULT.run
def ranks_gave_up_on_the_store(scene: Scene) -> Verdict | None:
    """They gave up, and no rank that ended before them explains it."""
    ended = exits.endings(scene)
    gave_up = [e for e in ended if join.gave_up_on_store(e)]
    if not gave_up or stopped.any_stopped(scene):
        return None
    served = any(_serves_store_of(v, gave_up[0].view) for v in scene.ranks)
    if served or any(not join.gave_up_on_store(e) for e in exits.cause(scene)):
        return None
    trying = [v for v in scene.ranks if join.waits_to_join(v) and _same_store(v, gave_up[0].view)]
    why, ranks, fix, fix_after_end = _explain(scene, [*(e.view for e in gave_up), *trying])
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{text.ranks(e.rank for e in gave_up)} could not reach the store: {why}: "
        f"{phrases.how_it_ended(gave_up[0]).quote}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=fix,
        fix_after_end=fix_after_end,
        evidence=[phrases.how_it_ended(e) for e in gave_up],
    )


def _cannot_reach_store(scene: Scene, view: RankView) -> bool:
    claim = join.claim_of(view)
    if claim is None or claim.serves or not join.waits_to_join(view):
        return False
    if not join.shown_connecting(view) or scene.now - claim.at < ANSWER_TIME:
        return False
    return not any(_serves_store_of(other, view) for other in scene.ranks)


def _serves_store_of(other: RankView, caller: RankView) -> bool:
    """A rank of ours serves the store that this one calls, or did."""
    claim = join.claim_of(other)
    return (
        claim is not None
        and claim.serves
        and other.rank != caller.rank
        and _same_store(other, caller)
    )


def _same_store(one: RankView, other: RankView) -> bool:
    return join.same_place(_store(one), _store(other))


class _Explanation(NamedTuple):
    """Why no rank serves the store, which ranks caused that, and what to do."""

    why: str
    ranks: list[int]
    fix: str
    fix_after_end: str | None = None


def _explain(scene: Scene, calling: Sequence[RankView]) -> _Explanation:
    claims = [(v, claim) for v in calling if (claim := join.claim_of(v)) is not None]
    misdirected = [v for v, c in claims if not join.same_place(c.store, c.given_store)]
    late = [v for v in join.not_come(scene) if v.rank == 0 and v.death is None]
    first = claims[0][1]
    elsewhere = join.host_of(first.store) != join.host_of(first.given_store)
    if late and not first.agent_store and not elsewhere:
        place = f"see where rank 0 is: {phrases.pid_command(scene, 'py-spy dump --pid', [0])}"
        why = "it is not up yet: rank 0, which serves it, has not reached init_process_group"
        return _Explanation(why, [0], place, fix_after_end="")
    if not misdirected:
        why = "no answer at the address that the launcher gave"
        return _Explanation(why, [], USE_LAUNCHER_ADDRESS)
    given = f"the launcher's store is at {first.given_store or 'no address'}"
    if elsewhere:
        why = f"that is not the host that the launcher gave: {given}"
    elif first.agent_store:
        why = f"no rank will ever serve one there: {given}, and the script sets another address"
    else:
        why = f"no rank of this job serves one there: {given}"
    return _Explanation(why, [v.rank for v in misdirected], USE_LAUNCHER_ADDRESS)


def _store(view: RankView) -> str:
    claim = join.claim_of(view)
    return claim.store if claim is not None else ""


def _store_evidence(view: RankView) -> Evidence:
    claim = join.claim_of(view)
    given = claim.given_store if claim else ""
    return Evidence(
        quote=f"rank {view.rank} connects to {_store(view)}, was given {given}",
        source="its page",
        rank=view.rank,
    )


CONFIDENCE = {connections.REFUSED: 0.6, connections.SILENT: 0.4, connections.NO_WAY: 0.25, "": 0.5}


LIGHTHOUSE = FAULT.log_pattern(
    "lighthouse",
    r"Failed to connect to lighthouse\. error: (?P<why>[^\"\n]{0,120})"
    r"|lighthouse quorum failed after \d+ retries",
    anchors=("Failed to connect to lighthouse.", "lighthouse quorum failed after "),
    example='RuntimeError: status: Internal, message: "Failed to connect to lighthouse. error: '
    'status: Unavailable"',
)


@FAULT.explain
def torchft_lighthouse_did_not_answer(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(LIGHTHOUSE)
    if not seen:
        return None
    return FAULT.diagnosis(
        "torchft's lighthouse did not answer, without which no quorum forms: it was not started, "
        "ended, or has another address than TORCHFT_LIGHTHOUSE says",
        confidence=0.85,
        seen=seen,
        culprit=Culprit(what="the lighthouse"),
        victims=[one.rank for one in seen if one.rank is not None],
        fix="start `torchft_lighthouse` first, and set TORCHFT_LIGHTHOUSE=http://HOST:29510 to a "
        "name that all nodes resolve",
        next="curl -sS -m 5 $TORCHFT_LIGHTHOUSE",
    )


@FAULT.explain
def store_did_not_answer(wreckage: Wreckage) -> Diagnosis | None:
    calls = connections.attempts(wreckage, connections.STORE)
    if not any(call.kind or call.address for call in calls) or name_resolution.unresolved(wreckage):
        return None
    kind = connections.commonest(call.kind for call in calls)
    named = sorted((c for c in calls if c.address), key=lambda c: not connections.as_asked(c))
    where = (named or calls)[0].where
    own_trouble = wreckage.roots()
    confidence = CONFIDENCE.get(kind, 0.4)
    if wreckage.seen(peers.RENDEZVOUS_LOST):
        confidence = min(confidence, 0.45)  # perhaps no node was to serve it: see rendezvous-config
    other_errors = "; errors of other processes below may be the cause" if own_trouble else ""
    return FAULT.diagnosis(
        f"no process served the store at {where} while the ranks tried to connect: rank 0's node "
        "was not started, started too late, exited first, or has another address or port"
        f"{other_errors}",
        confidence=min(confidence, 0.3) if own_trouble else confidence,
        seen=[call.seen for call in calls],
        culprit=Culprit(what=where if named else "the store of rank 0"),
        victims=[call.seen.rank for call in calls if call.seen.rank is not None],
        fix="start rank 0's node first, with the same address and port on every node; if a "
        "launcher is used, leave both to it",
        next="ss -ltnp 'sport = :29500'",
        unknown=[
            (
                "what rank 0 did: its own log shows whether it ever listened (run the command "
                "above on its node)"
            )
        ],
    )
