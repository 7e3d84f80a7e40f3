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

from holdfast import hold_up, scene_words
from holdfast.facts import MachineFacts, Smoke, SmokeRank, known
from holdfast.model import Evidence, Fault, Finding, Verdict
from holdfast.signals import RankView, Scene, Stack

FAULT = Fault(code="HOLD109", slug="ranks-missing")

START = 10.0
"""seconds: four ranks on two cores take that long to import torch"""
JOINING = ("init_process_group", "_new_process_group_helper", "rendezvous", "_store_based_barrier")
"""functions of torch.distributed in which a rank waits for the others to come"""


@FAULT.foresee
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


@FAULT.notice
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
    places = "; ".join(f"rank {v.rank} is {hold_up.place(v)}" for v in missing[:4])
    return FAULT.verdict(
        f"{len(scene.ranks) - len(missing)} of {len(scene.ranks)} ranks have come after "
        f"{scene_words.seconds(scene.now - scene.started_at)}; {scene_words.who(scene, ranks)} "
        f"{scene_words.one_or_many(ranks, 'has', 'have')} not: {places}",
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
