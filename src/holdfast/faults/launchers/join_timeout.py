"""Not all ranks joined within the timeout.

What you see   `Timed out after 601 seconds waiting for clients. 3/4 clients joined.`, `wait timeout
               after 1800000ms, keys: …`, or torchrun's RendezvousTimeoutError: always on ranks that
               did join.
Why            A rank that enters init_process_group waits for the others until a timeout: the
               group's own (600 s with NCCL, 1800 s with other backends), 300 s for a plain
               TCPStore, 600 s for torchrun's rendezvous. A rank that is still downloading, building
               or reading, or that never started, uses it up for all.
How to be sure `holdfast run` reports at half the timeout which ranks joined and which did not, with
               the code location of each missing rank.
Fix            Do long work before or after all ranks have joined, or raise the timeout:
               `init_process_group(timeout=timedelta(hours=1))` on every rank; with several nodes
               `torchrun --rdzv-conf join_timeout=3600`.
Known limits   From logs alone the missing rank is not known: the lines come from the ranks that
               joined. Of a node that is not heard `run` cannot say whether its ranks joined.
Sources        pytorch/pytorch torch/csrc/distributed/c10d/TCPStore.cpp: waitForWorkers
               pytorch/pytorch torch/distributed/constants.py: default timeouts
               torch/distributed/elastic/rendezvous/dynamic_rendezvous.py: join 600 s
"""

from __future__ import annotations

import re

from holdfast import text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.network_acts import KeepAway
from holdfast.analysis.drill.rehearsal import Rehearsal
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

FAULT = Fault(
    code="HOLD905",
    slug="join-timeout",
    related=("ranks-missing", "master-not-listening", "group-does-not-form", "rank-stuck"),
    traits=RunTraits(priority=235, needs_stall=True),
)

REPORT_AT = 0.5
"""of the timeout: before that, ranks-missing reports it"""
CLIENTS_TIMEOUT = re.compile(r"Timed out after \d+ seconds waiting for clients")
RAISE_TIMEOUT = "raise the timeout on every rank: `init_process_group(timeout=timedelta(hours=1))`"


@FAULT.run
def join_will_time_out(scene: Scene) -> Verdict | None:
    """Half of the timeout is over, and a rank has not joined."""
    waiting = [v for v in scene.ranks if join.waits_to_join(v)]
    deadlines = [
        (claim.at + claim.timeout, claim)
        for v in waiting
        if (claim := join.claim_of(v)) is not None and claim.timeout > 0
    ]
    if not deadlines or exits.endings(scene):
        return None
    expires, claim = min(deadlines, key=lambda deadline: deadline[0])
    waited = scene.now - claim.at
    if waited <= REPORT_AT * claim.timeout:
        return None
    missing = join.not_come(scene)
    ranks, joined = [v.rank for v in missing], [v.rank for v in waiting]
    left = text.elapsed(max(expires - scene.now, 0.0))
    return FAULT.verdict(
        f"{text.ranks(joined)} "
        f"{text.plural(joined, 'has', 'have')} waited in init_process_group for "
        f"{text.elapsed(waited)}; {_missing_in_words(scene, missing)}; the timeout of "
        f"{text.elapsed(claim.timeout)} expires in about {left}",
        ranks=ranks,
        victims=joined,
        certain=False,
        fix=f"{phrases.pid_command(scene, 'py-spy dump --pid', ranks[:1])}; {RAISE_TIMEOUT}"
        if missing
        else RAISE_TIMEOUT,
        fix_after_end=RAISE_TIMEOUT if missing else None,
        evidence=[_joined_evidence(v) for v in waiting] + [_location_evidence(v) for v in missing],
    )


@FAULT.run
def join_timed_out(scene: Scene) -> Verdict | None:
    """It has expired: the ranks that report it are the ones that joined."""
    timed_out = [e for e in exits.endings(scene) if _timed_out_joining(e)]
    if not timed_out or exits.cause(scene) or stopped.any_stopped(scene):
        return None
    if any(join.gave_up_on_store(e) for e in exits.endings(scene)):
        return None  # the store itself did not answer
    missing = join.not_come(scene)
    ranks = [v.rank for v in missing]
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{text.ranks(e.rank for e in timed_out)} timed out waiting for the others to join; "
        f"{_missing_in_words(scene, missing)}: {phrases.how_it_ended(timed_out[0]).quote}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=f"find out what delayed rank {ranks[0]}, or {RAISE_TIMEOUT}"
        if missing
        else RAISE_TIMEOUT,
        evidence=[phrases.how_it_ended(e) for e in timed_out]
        + [_location_evidence(v) for v in missing],
    )


def _timed_out_joining(ending: Ending) -> bool:
    view = ending.view
    if view.words is None or join.joined(view):
        return False
    if CLIENTS_TIMEOUT.search(view.words.text):
        return True
    return ending.consequence == secondary_errors.TIMED_OUT and join.claim_of(view) is not None


def _missing_in_words(scene: Scene, missing: tuple[RankView, ...]) -> str:
    if not missing and scene.missing_members:
        return "which of the other ranks belong to this group is not known"
    if not missing:
        return f"no rank of {'any node' if scene.nodes else 'this machine'} is missing"
    ranks = [v.rank for v in missing]
    places = "; ".join(f"rank {v.rank} {_doing(v)}" for v in missing[:4])
    verb = text.plural(ranks, "has", "have")
    return f"{phrases.who(scene, ranks)} {verb} not joined: {places}"


def _doing(view: RankView) -> str:
    return "ended with exit code 0" if view.death else f"is {stall.place(view)}"


def _joined_evidence(view: RankView) -> Evidence:
    return Evidence(quote=f"rank {view.rank} is in init_process_group", source="its heartbeat")


def _location_evidence(view: RankView) -> Evidence:
    return Evidence(quote=f"rank {view.rank} {_doing(view)}", source="stack", rank=view.rank)


# --- explain -------------------------------------------------------------------------------------

RENDEZVOUS = FAULT.log_pattern(
    "rendezvous",
    # 'failed to send a keep-alive heartbeat … due to an error of type …' is only a warning.
    r"(?<!error of type )RendezvousTimeoutError|rendezvous .{0,60}timed out"
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
def join_timeout_in_log(wreckage: Wreckage) -> Diagnosis | None:
    rendezvous = wreckage.seen(RENDEZVOUS, START_TIMEOUT)
    counted = [
        s
        for s in wreckage.seen(watchdog.CLIENTS_JOINED, watchdog.STORE_BARRIER)
        if int(s.fields.get("joined", "0")) < int(s.fields.get("expected", "1"))
    ]
    waited = [
        s for s in wreckage.seen(watchdog.STORE_WAIT) if _is_join_key(s.fields.get("keys", ""))
    ]
    silent = wreckage.seen(STORE_SILENT)
    seen = rendezvous or tuple(counted or waited or silent)
    if not seen:
        return None
    explained = blame.of(wreckage).explained
    sure = 0.75 if rendezvous else 0.5 if counted else 0.45 if waited else 0.35
    return FAULT.diagnosis(
        "the join timed out: the ranks that report it had joined, and another rank was late or "
        "never started",
        confidence=0.3 if explained else sure,
        seen=seen,
        culprit=Culprit(),
        victims={s.rank for s in seen if s.rank is not None},
        fix="find out which node or rank is missing and why (see the start of its log); if it is "
        f"only slow: {SLOW_NODES if rendezvous else RAISE_TIMEOUT}",
        next="" if rendezvous else "pgrep -af python",
        ruled_out=blame.ruled_out(wreckage),
        unknown=("which rank is missing: the lines come from ranks that joined",),
    )


def _is_join_key(keys: str) -> bool:
    """Store keys by which ranks announce themselves, and Gloo its addresses. NCCL's id is put there
    by one rank, which rank-stuck names; launchers wait for each other's end: see node-lost."""
    if "nccl_storekey_" in keys or "terminal_state" in keys:
        return False
    return bool(re.search(r"rank_\d|/cpu//|default_pg/\d+//|worker_count|init/|torchelastic", keys))


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(needs=("hosts",))
def host_never_comes(rehearsal: Rehearsal) -> Injection:
    host = hosts.other_host(rehearsal)
    return Injection(
        does=f"{host} never comes; then the job is started again with it",
        act=KeepAway(host=host),
        then=Then.REFUSES,
        from_start=True,
        culprits=(),
        beside=("ranks-missing",),
        join_timeout=15.0,
        notice_within=40.0,
    )
