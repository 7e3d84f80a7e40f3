"""The time to join runs out.

What you see   `Timed out after 601 seconds waiting for clients. 3/4 clients joined.`, `wait timeout
               after 1800000ms, keys: …`, or torchrun's RendezvousTimeoutError: always on ranks
               that did come.
Why            Whoever enters init_process_group waits for the others until a timeout: the group's
               own (600 s with NCCL, 1800 s with other backends), 300 s for a plain TCPStore, 600 s
               for torchrun's rendezvous. A rank that still downloads, builds or reads, or that
               never started, uses it up for all.
How to be sure `holdfast run` says who came and who has not at half the timeout, with the place in
               its code where each of the late ones is.
Fix            Do long work before or after all ranks have joined, or give the join more time:
               `init_process_group(timeout=timedelta(hours=1))` on every rank; with several nodes
               `torchrun --rdzv-conf join_timeout=3600`.
Sources        pytorch/pytorch torch/csrc/distributed/c10d/TCPStore.cpp: waitForWorkers
               pytorch/pytorch torch/distributed/constants.py: default timeouts
               torch/distributed/elastic/rendezvous/dynamic_rendezvous.py: join 600 s
"""

from __future__ import annotations

import re

from holdfast import text
from holdfast.analysis.job import join, phrases, stall
from holdfast.analysis.logs import blame
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene import exits, secondary_errors, stopped
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(code="HOLD905", slug="join-timeout", traits=RunTraits(priority=235, needs_stall=True))

SPEAK_AT = 0.5
"""of the timeout: before that it is `ranks-missing` that says who came"""
CLIENTS = re.compile(r"Timed out after \d+ seconds waiting for clients")
MORE_TIME = "give the join more time: `init_process_group(timeout=timedelta(hours=1))`, everywhere"


@FAULT.run
def the_join_will_time_out(scene: Scene) -> Verdict | None:
    """Half of the time is gone, and somebody is still not there."""
    waiting = [v for v in scene.ranks if join.waits_to_join(v)]
    clocks = [
        (claim.at + claim.timeout, claim)
        for v in waiting
        if (claim := join.claim_of(v)) is not None and claim.timeout > 0
    ]
    if not clocks or exits.endings(scene):
        return None
    strikes, claim = min(clocks, key=lambda clock: clock[0])
    waited = scene.now - claim.at
    if waited <= SPEAK_AT * claim.timeout:
        return None
    missing = join.not_come(scene)
    ranks, there = [v.rank for v in missing], [v.rank for v in waiting]
    left = text.elapsed(max(strikes - scene.now, 0.0))
    return FAULT.verdict(
        f"{text.ranks(there)} "
        f"{text.plural(there, 'has', 'have')} waited in init_process_group for "
        f"{text.elapsed(waited)}; {_absence(scene, missing)}; the timeout of "
        f"{text.elapsed(claim.timeout)} strikes in about {left}",
        ranks=ranks,
        victims=there,
        certain=False,
        fix=f"`py-spy dump --pid {missing[0].pid}`; {MORE_TIME}" if missing else MORE_TIME,
        evidence=[_came(v) for v in waiting] + [_at(v) for v in missing],
    )


@FAULT.run
def the_join_timed_out(scene: Scene) -> Verdict | None:
    """It has struck: those who complain are those who came."""
    struck = [e for e in exits.endings(scene) if _timed_out_joining(e)]
    if not struck or exits.cause(scene) or stopped.any_stopped(scene):
        return None
    if any(join.gave_up_on_store(e) for e in exits.endings(scene)):
        return None  # the store itself did not answer
    missing = join.not_come(scene)
    ranks = [v.rank for v in missing]
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{text.ranks(e.rank for e in struck)} gave up waiting for the others to join; "
        f"{_absence(scene, missing)}: {phrases.how_it_ended(struck[0]).quote}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=f"look at what kept rank {ranks[0]}, or {MORE_TIME}" if missing else MORE_TIME,
        evidence=[phrases.how_it_ended(e) for e in struck] + [_at(v) for v in missing],
    )


def _timed_out_joining(ending: Ending) -> bool:
    view = ending.view
    if view.words is None or join.joined(view):
        return False
    if CLIENTS.search(view.words.text):
        return True
    return ending.consequence == secondary_errors.TIMED_OUT and join.claim_of(view) is not None


def _absence(scene: Scene, missing: tuple[RankView, ...]) -> str:
    if not missing:
        return "no rank of this machine is missing there"
    ranks = [v.rank for v in missing]
    places = "; ".join(f"rank {v.rank} {_doing(v)}" for v in missing[:4])
    verb = text.plural(ranks, "has", "have")
    return f"{phrases.who(scene, ranks)} {verb} not come: {places}"


def _doing(view: RankView) -> str:
    return "ended with exit code 0" if view.death else f"is {stall.place(view)}"


def _came(view: RankView) -> Evidence:
    return Evidence(quote=f"rank {view.rank} is in init_process_group", source="its page")


def _at(view: RankView) -> Evidence:
    return Evidence(quote=f"rank {view.rank} {_doing(view)}", source="stack", rank=view.rank)


# --- explain -------------------------------------------------------------------------------------

RENDEZVOUS = FAULT.log_pattern(
    "rendezvous",
    r"RendezvousTimeoutError|rendezvous .{0,60}timed out"
    r"|[Tt]imed out waiting for (?:rendezvous|all nodes)",
    anchors=("RendezvousTimeoutError", "imed out"),
    example="torch.distributed.elastic.rendezvous.api.RendezvousTimeoutError",
    role=Role.CASCADE,
)
START_TIMEOUT = FAULT.log_pattern(
    "start-timeout",
    r"[Tt]imed out waiting for .{0,80}(?:to start|to join|to register|to launch)"
    r"|Horovod detected that one or more processes .{0,80}timeout",
    anchors=("imed out waiting for ", "Horovod detected that one"),
    example="horovod.runner.common.util.timeout.TimeoutException: Timed out waiting for tasks to "
    "start. Please check connectivity between servers.",
    role=Role.CASCADE,
)
STORE_SILENT = FAULT.log_pattern(
    "store-silent",
    r"waitForInput: (?:poll for )?socket .{1,200}(?:timed out after \d+ms|likely a timeout)",
    anchors=("waitForInput: ",),
    example="[W socket.cpp:487] [c10d] waitForInput: socket SocketImpl(fd=11, addr=[node-b]:38674, "
    "remote=[node-a]:29500) timed out after 900000ms",
    role=Role.CASCADE,
)
SLOW_NODES = "`torchrun --rdzv-conf join_timeout=3600`"


@FAULT.explain
def the_time_to_join_ran_out(wreckage: Wreckage) -> Diagnosis | None:
    rendezvous = wreckage.seen(RENDEZVOUS, START_TIMEOUT)
    counted = [
        s
        for s in wreckage.seen(watchdog.CLIENTS_JOINED, watchdog.STORE_BARRIER)
        if int(s.fields.get("joined", "0")) < int(s.fields.get("expected", "1"))
    ]
    waited = [s for s in wreckage.seen(watchdog.STORE_WAIT) if _is_start(s.fields.get("keys", ""))]
    silent = wreckage.seen(STORE_SILENT)
    seen = rendezvous or tuple(counted or waited or silent)
    if not seen:
        return None
    explained = blame.of(wreckage).explained
    sure = 0.75 if rendezvous else 0.5 if counted else 0.45 if waited else 0.35
    return FAULT.diagnosis(
        "the time to join ran out: those who report it came, and somebody else did not come in "
        "time or at all",
        confidence=0.3 if explained else sure,
        seen=seen,
        culprit=Culprit(),
        victims={s.rank for s in seen if s.rank is not None},
        fix="see which node or rank is not there and why (its own first lines); only if it is "
        f"merely slow: {SLOW_NODES if rendezvous else MORE_TIME}",
        next="" if rendezvous else "pgrep -af python",
        ruled_out=blame.ruled_out(wreckage),
        unknown=("who is missing: the lines are of those who came",),
    )


def _is_start(keys: str) -> bool:
    """Keys under which ranks tell each other that they are there, and Gloo its addresses."""
    return bool(re.search(r"rank_\d|/cpu//|default_pg/\d+//|worker_count|init/|torchelastic", keys))
