"""Some ranks never join the group.

What you see   Nothing, for minutes: the ranks that joined wait silently. Then `DistStoreError:
               Timed out … 3/4 clients joined`, `wait timeout after …ms`, or torchrun's
               `RendezvousTimeoutError`, always on the ranks that did join.
Why            init_process_group returns only when WORLD_SIZE ranks have joined. A rank that died
               while importing, was killed, was stopped, or was never started makes all others wait
               until their timeout, and the message you read is theirs.
How to be sure Count the processes, and look at the first one that is gone, not at the one that
               reports the error: its own log, its exit code, `dmesg` for an OOM kill. On one
               machine `holdfast check --smoke` starts the ranks itself and names the one that did
               not start.
Fix            Fix that rank. Exit code 0 or 1: read its first lines (an import, a sitecustomize, an
               argument). SIGKILL: check memory. State T: `kill -CONT PID`. Never started: check
               that the launcher's count agrees with WORLD_SIZE.
Known limits   The store counts ranks and does not identify them: without the logs of all ranks,
               `explain` knows how many are missing, not which. During a run this is a notice,
               because a slow import looks the same as a missing rank.
Sources        pytorch/pytorch torch/csrc/distributed/c10d/TCPStore.cpp: waitForWorkers
               https://docs.pytorch.org/docs/stable/distributed.html#initialization
               https://docs.pytorch.org/docs/stable/elastic/rendezvous.html
               meta-pytorch/torchft: src/lighthouse.rs (quorum)
               ray-project/ray: python/ray/train/v2/_internal/exceptions.py (worker group startup)
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import (
    NO_OTHER_RANK,
    BreakInside,
    CannotInject,
    Injection,
    Then,
)
from holdfast.analysis.drill.network_acts import KeepAway
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import join, phrases, stall
from holdfast.analysis.logs import blame
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import nccl, watchdog
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import MachineFacts, Smoke, SmokeRank, known
from holdfast.analysis.machine.smoke_failures import SmokeFailure
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.scene.scene import RankView, Scene, Stack
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD109",
    slug="ranks-missing",
    related=("join-timeout", "master-not-listening", "rank-assignment", "rank-killed"),
    traits=RunTraits(priority=450, needs_stall=True),
)
FAULT.smoke_failures.add(SmokeFailure.MISSING)

STARTUP_TIME = 10.0
"""seconds: four ranks on two cores take that long to import torch"""


@FAULT.check(needs=("smoke",))
def smoke_rank_did_not_start(facts: MachineFacts) -> Finding:
    if facts.smoke is None:
        return FAULT.does_not_apply("not asked for: add --smoke")
    smoke = known(facts.smoke)
    failed = next((stage for stage in smoke.stages if stage.status == "failed"), None)
    if failed and failed.cause == FAULT.slug:
        return FAULT.error(
            f"a rank of the smoke test was missing in stage '{failed.name}'",
            reason=f"{failed.reason}; the job's ranks would wait for it until their timeout",
            evidence=[_progress_of(smoke, rank) for rank in smoke.ranks],
            fix="find out why that rank ended or hung; the job's ranks start in the same "
            "environment",
        )
    if not all(rank.reached for rank in smoke.ranks):
        stage = failed.name if failed else "start"
        return FAULT.skipped(f"the smoke test ended at stage '{stage}', before all ranks were up")
    return FAULT.ok(f"all {smoke.world} ranks of the smoke test started")


def _progress_of(smoke: Smoke, rank: SmokeRank) -> Evidence:
    if rank.exit_code is None:
        how = "was still running"
    elif rank.exit_code < 0:
        how = f"was killed by signal {-rank.exit_code}"
    else:
        how = f"exited with code {rank.exit_code}"
    reached = f"finished '{rank.reached}'" if rank.reached else "finished no stage"
    pid = f" pid {rank.pid}" if rank.pid else ""
    return Evidence(
        quote=f"[rank {rank.rank}/{smoke.world}]{pid} {reached} and {how}",
        source="smoke test",
        rank=rank.rank,
    )


@FAULT.check_nodes
def fewer_nodes_came_than_expected(facts: NodesFacts) -> Finding:
    """Only those whose name is not known; node-lost names the others."""
    unnamed = [one for one in facts.absent if not one.name]
    here = len(facts.nodes)
    named = {node.name for node in facts.nodes} | {one.name for one in facts.absent if one.name}
    expected = len(named) + len(unnamed)
    if not unnamed:
        lost = f", and {len(facts.absent)} did not answer: see node-lost" if facts.absent else ""
        return FAULT.ok(f"{here} nodes came{lost}")
    return FAULT.error(
        f"{here} of {expected} nodes came: {text.names(node.name for node in facts.nodes)}",
        reason="the others did not join, so their names are not known here; the "
        "ranks of a job would wait for them until their timeout",
        evidence=[Evidence(quote=one.why, source=f"node {facts.coordinator}") for one in unnamed],
        fix=unnamed[0].hint
        or "start the same command on the missing nodes, or correct the count (--nnodes)",
    )


@FAULT.run
def ranks_have_not_joined_yet(scene: Scene) -> Verdict | None:
    """While the group forms: which ranks have joined and which have not. Being slow is no error."""
    living = [v for v in scene.ranks if v.death is None]
    if scene.now - scene.started_at < STARTUP_TIME or any(join.joined(v) for v in scene.ranks):
        return None
    waiting = [v for v in living if _waits_to_join(v)]
    missing = [v for v in living if not _waits_to_join(v)]
    announced = [v for v in scene.ranks if v.beat is not None]
    if not missing or not waiting:
        missing = [v for v in living if v.beat is None]
        waiting = [v for v in living if v.beat is not None]
        if not missing or not waiting:
            return None
    ranks = [v.rank for v in missing]
    places = "; ".join(f"rank {v.rank} is {stall.place(v)}" for v in missing[:4])
    return FAULT.verdict(
        f"{len(scene.ranks) - len(missing)} of {len(scene.ranks)} ranks have joined after "
        f"{text.elapsed(scene.now - scene.started_at)}; {phrases.who(scene, ranks)} "
        f"{text.plural(ranks, 'has', 'have')} not: {places}",
        ranks=ranks,
        victims=[v.rank for v in waiting],
        certain=False,
        fix=f"see where it is: {phrases.pid_command(scene, 'py-spy dump --pid', ranks[:1])}",
        fix_after_end="",
        evidence=[
            Evidence(
                quote=f"{len(announced)} of {len(scene.ranks)} ranks started their heartbeat",
                source="pages",
            )
        ],
    )


def _waits_to_join(view: RankView) -> bool:
    return isinstance(view.stack, Stack) and any(
        "/torch/distributed/" in frame.file and frame.function.rpartition(".")[2] in join.WAITS
        for frame in view.stack.frames
    )


# --- explain -------------------------------------------------------------------------------------

COUNT_PROCESSES = "pgrep -af python"
FIX = (
    "start the missing ranks, or correct the count: nodes × processes per node must equal "
    "WORLD_SIZE on every node; then read the first lines of the ranks that did not join"
)


@FAULT.explain
def store_counted_too_few_ranks(wreckage: Wreckage) -> Diagnosis | None:
    """The rank that waited says how many joined; it cannot know which did not."""
    seen = wreckage.seen(watchdog.CLIENTS_JOINED, watchdog.STORE_BARRIER)
    counted = [s for s in seen if _joined_count(s) < _expected_count(s)]
    if not counted:
        return None
    last = counted[-1]
    joined, expected = _joined_count(last), _expected_count(last)
    silent = absentees(wreckage, expected)
    absent = silent if len(silent) == expected - joined else ()
    rest = f"{text.ranks(absent)} left no trace" if absent else "the others never joined"
    return FAULT.diagnosis(
        f"{joined} of {expected} ranks joined before the timeout; {rest}",
        confidence=0.55 if blame.of(wreckage).explained else 0.85,
        seen=counted,
        culprit=_absent(absent, expected - joined),
        victims={s.rank for s in counted if s.rank is not None},
        fix=FIX,
        next=COUNT_PROCESSES,
        ruled_out=blame.ruled_out(wreckage),
        unknown=()
        if absent
        else ("which ranks did not join: the store counts them, but does not identify them",),
    )


def _joined_count(seen: Sighting) -> int:
    return int(seen.fields.get("joined", "0"))


def _expected_count(seen: Sighting) -> int:
    return int(seen.fields.get("expected", "0"))


def absentees(wreckage: Wreckage, expected: int) -> tuple[int, ...]:
    """Ranks that left no trace at all, where most of the others left one."""
    heard = {r.rank for r in wreckage.ranks}
    missing = [rank for rank in range(expected) if rank not in heard] if expected <= 4096 else []
    return tuple(missing) if heard and len(missing) < len(heard) else ()


def _absent(ranks: tuple[int, ...], count: int) -> Culprit:
    if len(ranks) == 1:
        return Culprit(rank=ranks[0])
    return Culprit(what=text.ranks(ranks) if ranks else f"{count} ranks that never joined")


QUORUM = FAULT.log_pattern(
    "quorum",
    # torchft's lighthouse; Ray Train.
    r"New quorum not ready, only have (?P<joined>\d+) participants, need (?:min_replicas "
    r"(?P<expected>\d+)|at least half of (?P<healthy>\d+) healthy workers)"
    r"|worker group startup timed out after (?P<seconds>[\d.]+) seconds waiting for "
    r"(?P<workers>\d+) workers",
    anchors=("New quorum not ready, only have ", "worker group startup timed out after"),
    example="Quorum status: New quorum not ready, only have 1 participants, need min_replicas 2 "
    "[1/1 participants healthy][1 heartbeating][shrink_only=false]",
    role=Role.CONTEXT,  # at the start a lighthouse waits for everyone, which is no trouble
)
FORMED = FAULT.log_pattern(
    "quorum-formed",
    r"Valid quorum found|Fast quorum found|Quorum! ",
    anchors=("Valid quorum found", "Fast quorum found", "Quorum! "),
    example="Quorum status: Valid quorum found [2/2 participants healthy][2 heartbeating]",
    role=Role.CONTEXT,
)


@FAULT.explain
def quorum_or_worker_group_incomplete(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(QUORUM)
    formed = wreckage.seen(FORMED)
    if not seen or (formed and formed[-1].order > seen[-1].order):
        return None  # the last word counts
    last = seen[-1].fields
    what = (
        f"not all of the {last['workers']} workers started within {last['seconds']} s"
        if "seconds" in last
        else f"torchft's quorum was not complete: {last['joined']} replica groups asked to join, "
        f"{last.get('expected') or 'half of ' + last.get('healthy', '')} are needed"
    )
    return FAULT.diagnosis(
        what,
        confidence=0.4 if blame.of(wreckage).explained else 0.75,
        seen=seen,
        culprit=Culprit(what="the workers that did not start"),
        fix="see why the others did not start: their logs, and whether the cluster has room for "
        "them; or lower the number that is required (`--min_replicas`, `ScalingConfig`)",
        next="ray status" if "seconds" in last else "",
        unknown=("which ones: only their number is reported",),
    )


@FAULT.explain
def nccl_group_never_formed(wreckage: Wreckage) -> Diagnosis | None:
    """Some ranks began to initialise NCCL and none finished, while others did not begin."""
    began = {s.rank: s for s in wreckage.seen(nccl.INIT_START) if s.rank is not None}
    if not began or wreckage.seen(nccl.INIT_COMPLETE) or blame.of(wreckage).explained:
        return None
    size = max(int(s.fields.get("nranks", "0")) for s in began.values())
    behind = [r.rank for r in wreckage.ranks if r.rank not in began and r.nccl_stage >= 0]
    # A rank whose own log was not given may have joined.
    apart = any(r.logs for r in wreckage.ranks)
    absent = tuple(behind) or (() if apart else absentees(wreckage, size))
    if not size or len(began) >= size or not absent:
        return None
    return FAULT.diagnosis(
        f"{text.ranks(began)} began to initialise an NCCL group of {size} and never finished; "
        f"{text.ranks(absent)} did not get that far",
        confidence=0.6,
        seen=tuple(began.values())[:3],
        culprit=_absent(absent, size - len(began)),
        victims=began,
        fix=FIX,
        next=COUNT_PROCESSES,
        ruled_out=blame.ruled_out(wreckage),
        unknown=blame.unknown(wreckage, *absent[:2]),
    )


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill()
def rank_never_joins(rehearsal: Rehearsal) -> Injection | CannotInject:
    if rehearsal.job.ranks == 1:
        return NO_OTHER_RANK
    return Injection(
        does=f"rank {rehearsal.rank} sleeps before init_process_group and never joins",
        act=BreakInside(how="hang"),
        then=Then.RESTARTS,
        from_start=True,
        beside=("rank-stuck",),
    )


@FAULT.drill("late-host", needs=("hosts",))
def host_comes_late(rehearsal: Rehearsal) -> Injection:
    host = hosts.other_host(rehearsal)
    return Injection(
        does=f"{host} comes only once it was missed",
        act=KeepAway(host=host),
        then=Then.GOES_ON,
        from_start=True,
        culprits=(),
        lifted=True,
    )
