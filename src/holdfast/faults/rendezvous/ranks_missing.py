"""Some ranks never join.

What you see   Nothing, for minutes: the ranks that came wait in silence. Then `DistStoreError:
               Timed out … 3/4 clients joined`, `wait timeout after …ms`, or torchrun's
               `RendezvousTimeoutError`, always on the ranks that did come.
Why            init_process_group returns when WORLD_SIZE ranks have joined, and not before. A rank
               that died while importing, was killed, was stopped, or was never started keeps all
               others waiting until their clock runs out, and it is their message you read.
How to be sure Count the processes, and look at the first one that is gone, not at the one that
               complains: its own log, its exit code, `dmesg` for a kill by the kernel. On one
               machine `holdfast check --smoke` starts the ranks itself and names the one that did
               not come.
Fix            Repair that rank. Exit code 0 or 1: read its first lines (an import, a
               sitecustomize, an argument). SIGKILL: look for memory. State T: `kill -CONT PID`.
               Never started: does the launcher's count agree with WORLD_SIZE?
Sources        pytorch/pytorch torch/csrc/distributed/c10d/TCPStore.cpp: waitForWorkers
               https://docs.pytorch.org/docs/stable/distributed.html#initialization
               https://docs.pytorch.org/docs/stable/elastic/rendezvous.html
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.job import phrases, stall
from holdfast.analysis.logs import blame
from holdfast.analysis.logs.patterns import nccl, watchdog
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import MachineFacts, Smoke, SmokeRank, known
from holdfast.analysis.machine.smoke_failures import SmokeFailure
from holdfast.analysis.scene.scene import RankView, Scene, Stack
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD109", slug="ranks-missing", traits=RunTraits(priority=450, needs_stall=True)
)
FAULT.smoke_failures.add(SmokeFailure.MISSING)

START = 10.0
"""seconds: four ranks on two cores take that long to import torch"""
JOINING = ("init_process_group", "_new_process_group_helper", "rendezvous", "_store_based_barrier")
"""functions of torch.distributed in which a rank waits for the others to come"""


@FAULT.check(needs=("smoke",))
def a_rank_of_the_smoke_test_did_not_come(facts: MachineFacts) -> Finding:
    if facts.smoke is None:
        return FAULT.does_not_apply("not asked for: add --smoke")
    smoke = known(facts.smoke)
    failed = next((stage for stage in smoke.stages if stage.status == "failed"), None)
    if failed and failed.cause == FAULT.slug:
        return FAULT.error(
            f"the smoke test missed a rank in stage '{failed.name}'",
            reason=f"{failed.reason}; the job's ranks would wait for it until their timeout",
            evidence=[_standing(smoke, rank) for rank in smoke.ranks],
            fix="see what ends or holds that rank: the same environment starts the job's ranks",
        )
    if not all(rank.reached for rank in smoke.ranks):
        stage = failed.name if failed else "start"
        return FAULT.skipped(f"the smoke test ended at stage '{stage}', before all ranks were up")
    return FAULT.ok(f"all {smoke.world} ranks of the smoke test came")


def _standing(smoke: Smoke, rank: SmokeRank) -> Evidence:
    if rank.exit_code is None:
        how = "was still running"
    elif rank.exit_code < 0:
        how = f"was ended by signal {-rank.exit_code}"
    else:
        how = f"ended with exit code {rank.exit_code}"
    came = f"finished '{rank.reached}'" if rank.reached else "finished no stage"
    pid = f" pid {rank.pid}" if rank.pid else ""
    return Evidence(
        quote=f"[rank {rank.rank}/{smoke.world}]{pid} {came} and {how}",
        source="smoke test",
        rank=rank.rank,
    )


@FAULT.run
def some_have_not_come_yet(scene: Scene) -> Verdict | None:
    """While the group forms: who is there, who is not. Nobody is to blame for being slow."""
    living = [v for v in scene.ranks if v.death is None]
    if scene.now - scene.started_at < START or any(_joined(v) for v in scene.ranks):
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
        f"{len(scene.ranks) - len(missing)} of {len(scene.ranks)} ranks have come after "
        f"{text.elapsed(scene.now - scene.started_at)}; {phrases.who(scene, ranks)} "
        f"{text.plural(ranks, 'has', 'have')} not: {places}",
        ranks=ranks,
        victims=[v.rank for v in waiting],
        certain=False,
        fix=f"look what keeps it: `py-spy dump --pid {missing[0].pid}`",
        evidence=[
            Evidence(
                quote=f"{len(announced)} of {len(scene.ranks)} ranks announced themselves",
                source="pages",
            )
        ],
    )


def _joined(view: RankView) -> bool:
    return view.beat is not None and view.beat.group_ready


def _waits_to_join(view: RankView) -> bool:
    return isinstance(view.stack, Stack) and any(
        "/torch/distributed/" in frame.file and frame.function.rpartition(".")[2] in JOINING
        for frame in view.stack.frames
    )


# --- explain -------------------------------------------------------------------------------------

COUNT = "pgrep -af python"
FIX = (
    "start the missing ranks, or make the count right: nodes × processes per node must be "
    "WORLD_SIZE on every node; then look why they did not come (their own first lines)"
)


@FAULT.explain
def the_store_counted_them(wreckage: Wreckage) -> Diagnosis | None:
    """The one who waited tells how many came; who did not it cannot know."""
    seen = wreckage.seen(watchdog.CLIENTS_JOINED, watchdog.STORE_BARRIER)
    counted = [s for s in seen if _came(s) < _expected(s)]
    if not counted:
        return None
    last = counted[-1]
    came, expected = _came(last), _expected(last)
    heard_not = absentees(wreckage, expected)
    absent = heard_not if len(heard_not) == expected - came else ()
    return FAULT.diagnosis(
        f"{came} of {expected} ranks joined before the clock ran out; "
        + (f"{blame.plain(absent)} left no trace" if absent else "the others never came"),
        confidence=0.55 if blame.of(wreckage).explained else 0.85,
        seen=counted,
        culprit=_absent(absent, expected - came),
        victims={s.rank for s in counted if s.rank is not None},
        fix=FIX,
        next=COUNT,
        ruled_out=blame.ruled_out(wreckage),
        unknown=()
        if absent
        else ("which ranks did not come: the store counts, it knows no names",),
    )


def _came(seen: Sighting) -> int:
    return int(seen.fields.get("joined", "0"))


def _expected(seen: Sighting) -> int:
    return int(seen.fields.get("expected", "0"))


def absentees(wreckage: Wreckage, expected: int) -> tuple[int, ...]:
    """Ranks of whom nothing at all is here, where most of the others left something."""
    heard = {r.rank for r in wreckage.ranks}
    missing = [rank for rank in range(expected) if rank not in heard] if expected <= 4096 else []
    return tuple(missing) if heard and len(missing) < len(heard) else ()


def _absent(ranks: tuple[int, ...], count: int) -> Culprit:
    if len(ranks) == 1:
        return Culprit(rank=ranks[0])
    return Culprit(what=blame.plain(ranks) if ranks else f"{count} ranks that never joined")


@FAULT.explain
def nccl_never_formed(wreckage: Wreckage) -> Diagnosis | None:
    """Some began NCCL's start and none finished it, while others did not even begin."""
    began = {s.rank: s for s in wreckage.seen(nccl.INIT_START) if s.rank is not None}
    if not began or wreckage.seen(nccl.INIT_COMPLETE) or blame.of(wreckage).explained:
        return None
    size = max(int(s.fields.get("nranks", "0")) for s in began.values())
    behind = [r.rank for r in wreckage.ranks if r.rank not in began and r.nccl_stage >= 0]
    # A rank whose own file was simply not given did not fail to come.
    apart = any(r.logs for r in wreckage.ranks)
    absent = tuple(behind) or (() if apart else absentees(wreckage, size))
    if not size or len(began) >= size or not absent:
        return None
    return FAULT.diagnosis(
        f"{blame.plain(began)} began to form NCCL's group of {size} and never finished; "
        f"{blame.plain(absent)} did not come that far",
        confidence=0.6,
        seen=tuple(began.values())[:3],
        culprit=_absent(absent, size - len(began)),
        victims=began,
        fix=FIX,
        next=COUNT,
        ruled_out=blame.ruled_out(wreckage),
        unknown=blame.unknown(wreckage, *absent[:2]),
    )
