from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest

from holdfast.analysis.job.journal_records import EndRecord, LaunchRecord
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Policy, Scene, Stack
from holdfast.explain import from_scene, live_verdict
from holdfast.explain.read import run_journal
from holdfast.faults.collectives.rank_stuck import FAULT
from holdfast.findings import Culprit, Diagnosis, Grade, Verdict
from holdfast.run.runs.journal import Journal
from holdfast.run.watch import decide
from holdfast.run.watch.reporter import Reporter
from holdfast.run.watch.verdict import judge
from holdfast.view.run_screen import Screen
from tests.analysis.collectives.nccl_documents import Written
from tests.analysis.collectives.test_gpu_side import IN_ALL_REDUCE, IN_STEP, ahead
from tests.analysis.collectives.test_gpu_side import a_job as gpu_job
from tests.analysis.logs.patterns.jobs import (
    HEALTHY,
    RESET,
    VANISHED,
    a_job,
    a_raise,
    a_stack,
    an_exit,
    stood,
    timed_out,
)
from tests.analysis.logs.patterns.jobs import STUCK as STUCK_JOB
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.ras.answers import launched
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import (
    IN_BACKWARD,
    IN_BARRIER,
    IN_SAVE,
    IN_SLEEP,
    NOW,
    STEPS,
    TIMED_OUT,
    TORCH,
    WALL,
    a_beat,
    a_rank,
    a_scene,
    an_activity,
    changed,
    ended,
    held_up,
    waiting,
    words,
)
from tests.run.scenes import (
    a_stack as a_live_stack,
)

SLEEPS = an_activity(wait_channel="hrtimer_nanosleep")
UNSEEN = Unread(why="no socket")
STUCK = held_up({2: {"activity": SLEEPS}})
LONG_AGO = a_beat(step_at=NOW - 9)
GAVE_UP = [
    msgspec.structs.replace(
        ended(r, 1, said=words("RuntimeError", TIMED_OUT, at=NOW - 0.5)), beat=LONG_AGO
    )
    for r in (0, 1)
]

test_run = run_table(
    "rank-stuck",
    notices(
        STUCK,
        ranks=[2],
        victims=[0, 1, 3],
        certain=False,
        saying=[
            "rank 2 (pid 4002) has been in load() at data.py:88 for 6.0 s, no",
            "activity for 6.0 s; ranks 0-1,3 wait for it in all_reduce #101",
        ],
    ),
    notices(
        held_up({0: {"stack": IN_SAVE, "alive_at": NOW}}),
        ranks=[0],
        victims=[1, 2, 3],
        certain=False,
        saying=["in save() at ckpt.py:40 for 6.0 s, active; ranks 1-3 wait"],
    ),
    notices(
        held_up({0: {"activity": an_activity(state="D", wait_channel="rpc_wait")}}),
        ranks=[0],
        certain=False,
        saying=["inside the kernel (rpc_wait)"],
    ),
    notices(
        held_up({1: {}, 2: {}}), ranks=[1, 2], victims=[0, 3], certain=False, saying=["1-2 have"]
    ),
    # without its recorder, it is the only one that does not wait
    notices(
        held_up({2: {"recorder": UNSEEN, "activity": SLEEPS}}),
        ranks=[2],
        victims=[0, 1, 3],
        certain=False,
        saying=["rank 2"],
    ),
    # the others' clocks ran out, it never came
    notices(
        a_scene([*GAVE_UP, a_rank(2, beat=LONG_AGO)], evidence_at=NOW - 0.1),
        ranks=[2],
        victims=[0, 1],
        certain=False,
        saying=["rank 2"],
    ),
    overlooks(a_scene()),
    # no steps, but collectives complete: the others have only just entered this one
    overlooks(held_up({2: {}}, evidence_wall=WALL + (STEPS + 1) * 0.05 + 0.4)),
    notices(
        held_up({2: {"alive_at": NOW - 0.6}}, evidence_wall=WALL + (STEPS + 1) * 0.05 + 1.5),
        ranks=[2],
        certain=False,
        saying=["for 1.6 s; ranks 0-1,3 wait"],  # counters are too coarse to say more
    ),
    overlooks(held_up({2: {}}, seconds=0.5)),  # in every healthy step some rank waits
    overlooks(held_up({})),  # all are in it: none is late
    overlooks(changed(STUCK, 0, beat=a_beat(step_at=NOW))),  # it has stepped since we looked
    # a rank that waits elsewhere, for a message say, is not the one to blame
    overlooks(held_up({2: {"stack": IN_BARRIER}})),
    # two of which nothing is known: either may be the one
    overlooks(held_up({1: {"recorder": UNSEEN}, 2: {"recorder": UNSEEN}})),
    overlooks(changed(STUCK, 2, recorder=waiting(), stack=IN_BACKWARD)),
)


UNIQUE_ID = (
    "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving "
    "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: "
)
HOROVOD = (
    "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks "
    "and are waiting for remainder of ranks for more than 60 seconds."
)

test_explain = explain_table(
    "rank-stuck",
    recognises(
        wreckage(ras=(launched(7, 7, 7, silent=[1]),)),
        sure=0.65,
        rank=1,
        victims=[0, 2],
        saying=["rank 1 (pid 601 on 192.0.2.2) does not answer NCCL's RAS", "pid 601"],
        not_saying=["exists any more"],
    ),
    recognises(
        wreckage(ras=(launched(7, 7, 7, dead=[1], states={601: ""}),)),
        sure=0.65,
        rank=1,
        saying=["which has given up on it", "no such process exists any more"],
    ),
    recognises(
        wreckage(ras=(launched(7, 7, 7, 7, dead=[1, 2]),)),
        sure=0.5,
        what="rank 1 (pid 601 on 192.0.2.2) and rank 2 (pid 602 on 192.0.2.2)",
        saying=["do not answer"],
    ),
    recognises(
        wreckage(ras=(launched(7, 7, 6, at=1), launched(7, 7, 6, at=3))),
        sure=0.55,
        rank=2,
        victims=[0, 1],
        saying=[
            "rank 2 (pid 602 on 192.0.2.2) has launched 6 AllReduce",
            "and the other 2 ranks 7; nothing changed in 2.0 s",
            "holdfast explain --pid 602",
        ],
    ),
    recognises(
        wreckage(ras=(launched(8, 7, 7, at=1), launched(8, 7, 7, at=3))),
        sure=0.4,
        victims=[],
        saying=["rank 0 (pid 600 on 192.0.2.2) has launched 8 AllReduce", "most ranks are behind"],
    ),
    recognises(
        wreckage(ras=(launched(7, 6, at=1), launched(7, 6, at=3))),
        sure=0.4,
        victims=[],
        saying=["rank 1 (pid 601 on 192.0.2.2) has launched 6 AllReduce"],
    ),
    recognises(
        wreckage(ras=(launched(7, 7, 6),)),
        sure=0.3,
        rank=2,
        saying=["in a job that moves, ranks differ", "ask again"],
    ),
    passes_over(wreckage(ras=(launched(7, 7, 6, at=1), launched(9, 9, 8, at=3)))),
    passes_over(wreckage(ras=(launched(7, 7, 7),))),
    recognises(
        wreckage(
            "[rank3]: RuntimeError: [3] is setting up NCCL communicator and retreiving "
            "ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got "
            "error: Socket Timeout"
        ),
        sure=0.45,
        rank=0,
        victims=[3],
        saying=["never reached its first NCCL collective"],
    ),
    recognises(
        STUCK_JOB,
        sure=0.85,
        rank=2,
        victims=[0, 1, 3],
        saying=["rank 2 never entered all_reduce #11", "ranks 0-1,3 waited", "#10"],
    ),
    recognises(
        a_job(
            *map(timed_out, (0, 1, 3)),
            recorders={0: stood(11), 1: stood(11), 2: stood(10, 10), 3: stood(11)},
            stacks={2: a_stack("read", "data.py")},
        ),
        sure=0.85,
        rank=2,
        saying=["it was in read() at data.py:30"],
    ),
    recognises(
        a_job(
            *map(timed_out, (0, 1, 3)),
            recorders={0: stood(11), 2: stood(10, 10), 3: stood(11)},
            world=None,
        ),
        sure=0.65,
        rank=2,
        saying=["never entered"],
    ),
    recognises(
        a_job(
            "[rank0]: RuntimeError: [Rank 0]: Rank 2 failed to pass monitoredBarrier in 30000 ms"
        ),
        sure=0.7,
        rank=2,
        saying=["torch names it"],
    ),
    recognises(
        a_job("\t [2] finished collective #10, but didn't join collective #11 (count from 1)"),
        sure=0.7,
        rank=2,
        saying=["rank 2"],
    ),
    recognises(VANISHED, sure=0.3, rank=2, saying=["left no log, stack or recorder"]),
    recognises(
        a_job(*map(timed_out, (0, 1, 3))),
        sure=0.45,
        rank=2,
        saying=["rank 2 logged nothing about it"],
    ),
    recognises(
        a_job(timed_out(1), world=None),
        sure=0.35,
        rank=None,
        victims=[1],
        saying=["do not show which rank was missing"],
    ),
    recognises(
        a_job(UNIQUE_ID + "Socket Timeout", world=None),
        sure=0.45,
        rank=0,
        saying=["communicator's id"],
    ),
    recognises(
        a_job(HOROVOD, "Missing ranks:", "2: [allreduce.fc.weight, allreduce.fc.bias]"),
        sure=0.7,
        rank=2,
        saying=["allreduce.fc.weight"],
    ),
    recognises(  # until Horovod 0.16: who came
        a_job("Stalled ops: op.a [ready ranks: 0, 1, 3], op.b [ready ranks: 3, 1, 0]"),
        sure=0.65,
        rank=2,
        victims=[0, 1, 3],
        saying=["Horovod waited for rank 2"],
    ),
    recognises(
        a_job("Stalled ops: allreduce.a [ready ranks: 0], allreduce.b [ready ranks: 3]"),
        sure=0.35,
        rank=None,
        saying=["Horovod waited for"],
    ),
    recognises(
        a_job("DistributedAdam_Allreduce/grads_0 [missing ranks: 1]"),
        sure=0.7,
        rank=1,
        saying=["rank 1"],
    ),
    passes_over(HEALTHY),
    passes_over(RESET),
    passes_over(a_job(UNIQUE_ID + "Connection reset by peer", world=None)),
    # Who tells of trouble of his own, or was killed, explains the wait.
    passes_over(a_job(*map(timed_out, (0, 1, 3)), raised=[a_raise(2, "ValueError", "bad batch")])),
    passes_over(a_job(*map(timed_out, (0, 1, 3)), exits=[an_exit(2, -9, first=True)])),
    # Everybody came: no rank is late.
    passes_over(a_job(*map(timed_out, range(4)), recorders={r: stood(11) for r in range(4)})),
    # Most are behind: those inside are the odd ones.
    passes_over(
        a_job(timed_out(0), recorders={0: stood(11)} | {r: stood(10, 10) for r in (1, 2, 3)})
    ),
)


@pytest.mark.parametrize("python", [IN_STEP, IN_ALL_REDUCE], ids=["anywhere", "in all_reduce"])
def test_a_gpu_that_never_started_is_named_with_what_it_has_not_started(python: Stack) -> None:
    written = [ahead("scheduled" if rank == 2 else "started") for rank in range(4)]
    (said,) = FAULT.ask_run(gpu_job(written, {2: python}))
    assert isinstance(said, Verdict)
    assert (said.ranks, said.victims, said.certain) == ((2,), (0, 1, 3), False)
    assert said.reason.startswith(
        "the GPU of rank 2 (pid 4002) has not started all_reduce #4 for 5.0 s: a kernel or copy "
        "before it has not ended; ranks 0-1,3 wait for it in all_reduce #4; its script is "
    )
    assert "train.py:" in said.reason
    assert "cuda-gdb -p 4002" in said.fix


def test_a_stage_whose_gpu_never_started_is_named_with_its_message() -> None:
    written = [
        Written().past(1).batch("started", "send 0->1"),
        Written().past(1).batch("scheduled", "recv 1<-0"),
    ]
    (said,) = FAULT.ask_run(gpu_job(written))
    assert isinstance(said, Verdict)
    assert "the GPU of rank 1 (pid 4001) has not started its recv from rank 0" in said.reason
    assert "rank 0 waits for it in send to rank 1" in said.reason


IN_SYNCHRONIZE = a_live_stack(
    ("synchronize", f"{TORCH}/cuda/__init__.py", 1040), ("main", "/home/me/train.py", 41)
)
IN_ITEM = msgspec.structs.replace(IN_STEP, active=True)


def graphs_job(
    *,
    seconds: float = 12.0,
    replayed: int = 50,
    others: Stack = IN_STEP,
    odd: Stack = IN_SLEEP,
    ranks: int = 4,
    **beat: object,
) -> Scene:
    """The recorders end where the graph was captured, so many steps before the stall."""
    members = {"0": tuple(range(ranks))}
    written = [Written(members).past(3) for _ in range(ranks)]
    since = (replayed * 0.05) + seconds + 0.2
    scene = gpu_job(written, {**dict.fromkeys(range(ranks), others), ranks - 2: odd}, later=since)
    beats = a_beat(step_at=NOW - seconds, **{"cuda_graphs": True, **beat})
    for rank in range(ranks):
        scene = changed(scene, rank, beat=beats)
    return scene


@pytest.mark.parametrize(
    ("scene", "odd", "waiting"),
    [
        (graphs_job(others=IN_SYNCHRONIZE), 2, "ranks 0-1,3 wait in synchronize() at train.py:41"),
        (graphs_job(others=IN_ITEM), 2, "ranks 0-1,3 wait in main() at train.py:40"),
        (graphs_job(others=IN_SYNCHRONIZE, ranks=2), 0, "rank 1 waits in synchronize() at"),
    ],
    ids=["synchronize", "item", "two ranks"],
)
def test_the_one_rank_that_is_not_where_all_others_wait_is_named_as_likely(
    scene: Scene, odd: int, waiting: str
) -> None:
    (said,) = FAULT.ask_run(scene)
    assert isinstance(said, Verdict)
    others = tuple(view.rank for view in scene.ranks if view.rank != odd)
    assert (said.ranks, said.victims, said.certain) == ((odd,), others, False)
    assert f"rank {odd} (pid 400{odd}) is likely what the job has waited for" in said.reason
    assert "12.0 s ago: it is in load() at data.py:88, while " + waiting in said.reason
    assert "torch does not record collectives in CUDA graphs" in said.reason


def test_what_patience_acted_on_stays_likely_when_it_is_explained(tmp_path: Path) -> None:
    scene = graphs_job(others=IN_SYNCHRONIZE)
    verdict = judge(scene)
    assert verdict is not None
    journal = Journal(str(tmp_path / "journal.jsonl"))
    journal.write(LaunchRecord(world=4))
    reporter = Reporter(journal, Screen(io.StringIO()), "a", None)
    reporter.judgement(verdict, scene, action="stopping", steps=1, evidence="")
    journal.write(EndRecord(attempt=0, exit_code=124))
    (said,) = run_journal.read((tmp_path / "journal.jsonl").read_bytes(), "j").told
    (opinion,) = live_verdict.weigh(Wreckage(live_verdicts=(said,)), [])
    assert opinion.grade is Grade.LIKELY


def test_stacks_of_a_running_job_name_the_rank_that_the_gpus_of_the_others_wait_for() -> None:
    scene = graphs_job(others=IN_SYNCHRONIZE)
    (said,) = FAULT.ask_explain(from_scene.wreckage(scene, None, standstill=True))
    assert isinstance(said, Diagnosis)
    assert (said.culprit, said.grade) == (Culprit(rank=2), Grade.LIKELY)
    assert "ranks 0-1,3 wait in synchronize(), which ends only when every rank" in said.reason


def test_a_rank_that_waits_for_its_gpu_may_be_the_one_that_does_not_come() -> None:
    """Its kernel may never end, while the others wait in a barrier on the CPU."""
    scene = graphs_job(others=IN_BARRIER, odd=IN_SYNCHRONIZE)
    (said,) = FAULT.ask_explain(from_scene.wreckage(scene, None, standstill=True))
    assert isinstance(said, Diagnosis)
    assert said.culprit == Culprit(rank=2)


def acted_on(seconds: float, patience: float | None) -> str:
    """What `run` does after so many seconds of such a wait."""
    scene = msgspec.structs.replace(graphs_job(others=IN_SYNCHRONIZE), now=NOW)
    verdict = judge(scene)
    first = decide.remember(NOW, scene, verdict, decide.StallHistory())
    later = msgspec.structs.replace(scene, now=NOW + seconds)
    policy = Policy(max_restarts=3, restarts_typed=True, patience=patience)
    return decide.decide(later.now, later, judge(later), policy, first).action


def test_only_patience_acts_on_the_rank_that_is_likely_waited_for() -> None:
    """No declared timeout runs there: torch's watchdog does not see collectives in a graph."""
    assert acted_on(100_000.0, None) == "go-on"
    assert acted_on(15.0, 10.0) == "restart"


@pytest.mark.parametrize(
    "scene",
    [
        graphs_job(others=IN_SYNCHRONIZE, odd=IN_SYNCHRONIZE),
        changed(graphs_job(others=IN_SYNCHRONIZE), 3, stack=IN_SLEEP),
        changed(graphs_job(others=IN_SYNCHRONIZE), 3, stack=UNSEEN),
        graphs_job(others=IN_SLEEP, odd=IN_SYNCHRONIZE),
        graphs_job(others=IN_SLEEP, odd=IN_ITEM),
        graphs_job(others=IN_ITEM, ranks=2),
    ],
    ids=["all wait", "two elsewhere", "a stack is missing", "one waits", "at work", "two ranks"],
)
def test_no_rank_is_named_where_more_than_one_may_be_waited_for(scene: Scene) -> None:
    (said,) = FAULT.ask_run(scene)
    assert isinstance(said, Verdict)
    assert said.ranks == ()
    assert "cannot be seen" in said.reason


def test_what_cuda_graphs_hide_is_said_with_the_places_of_all_scripts() -> None:
    (said,) = FAULT.ask_run(graphs_job())
    assert isinstance(said, Verdict)
    assert (said.ranks, said.certain) == ((), False)
    assert "which rank the others wait for cannot be seen" in said.reason
    assert "in CUDA graphs, which torch does not record" in said.reason
    assert "rank 2 is in load() at data.py:88" in said.reason


@pytest.mark.parametrize(
    "scene",
    [
        graphs_job(cuda_graphs=False),
        graphs_job(seconds=5.0),
        graphs_job(replayed=1),
        graphs_job(replayed=1, others=IN_SYNCHRONIZE),
    ],
    ids=["no graphs", "a short pause", "recorded up to the last step", "one elsewhere"],
)
def test_nothing_is_said_of_cuda_graphs(scene: Scene) -> None:
    assert list(FAULT.ask_run(scene)) == []
