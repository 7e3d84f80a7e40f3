from __future__ import annotations

import signal

from holdfast.analysis.ras.answer import RasAnswer
from holdfast.analysis.scene.scene import Scene
from tests.analysis.logs.patterns.jobs import HEALTHY, STUCK, a_job, differ, stood, timed_out
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.ras.answers import answer, launched
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import (
    ENFORCE,
    IN_BACKWARD,
    IN_BARRIER,
    NOW,
    STEPS,
    a_recorder,
    a_scene,
    changed,
    ended,
    entry,
    held_up,
    lost_its_peer,
    waiting,
    words,
)
from tests.system.ras_server import FakeCommunicator, FakeJob, FakeRank

LARGER = waiting(entry(STEPS + 1, shape="[8] Float", finished=False))
A_BARRIER = waiting(entry(STEPS + 1, op="barrier", shape="", finished=False))
ABORT = words("gloo::EnforceNotMet", ENFORCE, where="")


def gloo_aborted(scene: Scene, rank: int) -> Scene:
    death = ended(rank, -signal.SIGABRT).death
    return changed(scene, rank, death=death, words=ABORT, recorder=None, stack=None)


ODD = changed(held_up({}, seconds=1.0), 1, recorder=LARGER)
PERIODIC = [
    entry(n, shape="[4] Float" if n % 2 else "[9] Float") for n in range(STEPS - 9, STEPS + 1)
]
HERE = a_recorder(*PERIODIC, entry(STEPS + 1, finished=False))
SKIPPED = a_recorder(*PERIODIC, entry(STEPS + 1, shape="[9] Float", finished=False))
SCATTER = [
    waiting(entry(STEPS + 1, op="scatter", shape="[3, 4] Float" if r == 0 else "", finished=False))
    for r in range(4)
]

test_run = run_table(
    "collective-mismatch",
    notices(
        ODD,
        ranks=[1],
        victims=[0, 2, 3],
        certain=True,
        saying=[
            "rank 1 (pid 4001) called all_reduce [8] Float where all others called",
            "all_reduce [4] Float in collective #101",
            "ranks 0,2-3 cannot continue",
        ],
    ),
    notices(
        changed(held_up({}), 3, recorder=A_BARRIER),
        ranks=[3],
        certain=True,
        saying=["called barrier where all others called all_reduce [4] Float"],
    ),
    notices(
        changed(held_up({}, victim={"recorder": HERE}), 2, recorder=SKIPPED),
        ranks=[2],
        certain=True,
        saying=["rank 2", "it probably skipped one"],
    ),
    # Gloo ended a rank that did nothing wrong
    notices(gloo_aborted(ODD, 0), ranks=[1], victims=[0, 2, 3], certain=True, saying=["[8]"]),
    # three ranks, one of them ended: it was sent too much, so it stood with the smaller
    notices(
        gloo_aborted(changed(held_up({}, ranks=3), 1, recorder=LARGER), 0),
        ranks=[1],
        certain=True,
        saying=["called all_reduce [8]"],
    ),
    # all who are left agree: the one that was sent too much is the odd one
    notices(
        gloo_aborted(held_up({}), 2),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=["called a smaller collective than all_reduce [4] Float"],
    ),
    # with two ranks, or two against two, the culprit is not known
    notices(
        changed(held_up({}, ranks=2), 1, recorder=LARGER),
        ranks=[0, 1],
        certain=True,
        saying=["undecided", "rank 0 all_reduce [4] Float", "rank 1 all_reduce [8] Float"],
    ),
    # both sides' lines; an aborted rank left a crash file and no recorder
    notices(
        changed(
            changed(held_up({}, ranks=2), 1, recorder=A_BARRIER, stack=IN_BARRIER),
            0,
            stack=IN_BACKWARD,
        ),
        ranks=[0, 1],
        certain=True,
        saying=[
            "rank 0 all_reduce [4] Float in backward() at train.py:30, rank 1 barrier in train()",
            "at train.py:44; no majority",
        ],
    ),
    notices(
        changed(ODD, 1, stack=IN_BARRIER),
        ranks=[1],
        certain=True,
        saying=["#101: rank 1 in train() at train.py:44, rank 0 in backward() at train.py:30"],
    ),
    notices(
        changed(
            gloo_aborted(changed(held_up({}, ranks=2), 1, recorder=LARGER), 0), 0, crash=IN_BARRIER
        ),
        ranks=[0, 1],
        certain=True,
        saying=["rank 0 an unknown one in train() at train.py:44, rank 1 all_reduce [8] Float in"],
    ),
    # it has gone on to a later one: where it is now is not where it called this one
    notices(
        changed(
            held_up({}, ranks=2),
            1,
            recorder=waiting(
                entry(STEPS + 1, shape="[8] Float", finished=False),
                entry(STEPS + 2, finished=False),
            ),
        ),
        ranks=[0, 1],
        certain=True,
        saying=["rank 1 all_reduce [8] Float; no majority"],
    ),
    notices(
        changed(ODD, 2, recorder=LARGER), ranks=[0, 1, 2, 3], certain=True, saying=["undecided"]
    ),
    # no recorder is left
    notices(
        a_scene([ended(0, -6, said=ABORT), lost_its_peer(1), lost_its_peer(2)]),
        ranks=[],
        victims=[0, 1, 2],
        certain=True,
        saying=["rank 0 received a collective of a different size", "the sender is unknown"],
    ),
    overlooks(a_scene()),
    overlooks(held_up({})),
    overlooks(held_up({2: {}})),
    # [2, 2] and [4] move the same, and a scatter may differ
    overlooks(
        changed(
            held_up({}),
            1,
            recorder=waiting(entry(STEPS + 1, shape="[2, 2] Float", finished=False)),
        )
    ),
    overlooks(held_up({r: {"recorder": SCATTER[r]} for r in range(4)})),
    # long over, and all continued: it did no harm
    overlooks(
        changed(
            held_up({}),
            1,
            recorder=a_recorder(entry(STEPS, shape="[8] Float"), entry(STEPS + 1, finished=False)),
        )
    ),
    overlooks(a_scene([lost_its_peer(0, at=NOW - 1), ended(1, -9, at=NOW - 1.1)])),
)


OTHER_SIZE = a_job(
    *map(timed_out, range(4)),
    recorders={r: stood(11) for r in (0, 1, 3)} | {2: stood(11, shape="[2048] Float")},
)
OTHER_OP = a_job(
    *map(timed_out, range(4)),
    recorders={r: stood(11) for r in (0, 1, 3)} | {2: stood(11, op="broadcast")},
)


def crossed(*odd: int, at: float, ranks: int = 4) -> RasAnswer:
    """These ranks broadcast where the others reduce."""
    told = [
        FakeRank(n, 600 + n, counts={"AllReduce": 7 + (n not in odd), "Broadcast": 3 + (n in odd)})
        for n in range(ranks)
    ]
    return answer(FakeJob(communicators=(FakeCommunicator(told),)), at=at)


test_explain = explain_table(
    "collective-mismatch",
    recognises(
        wreckage(ras=(crossed(2, at=1), crossed(2, at=3))),
        sure=0.6,
        rank=2,
        victims=[0, 1, 3],
        saying=["rank 2 (pid 602 on 192.0.2.2) launched other collectives than the rest"],
    ),
    recognises(
        wreckage(ras=(crossed(2, 3, at=1), crossed(2, 3, at=3))),
        sure=0.6,
        victims=[],
        saying=["some ranks launched other collectives"],
    ),
    passes_over(wreckage(ras=(crossed(2, at=3),))),
    passes_over(wreckage(ras=(launched(7, 7, 6, at=1), launched(7, 7, 6, at=3)))),
    recognises(
        wreckage(
            "NCCL WARN NET/IB : req 0/1 tag 0 peer 192.0.2.7<43210> collective mismatch error, "
            "local size 4096 remote size 1024"
        ),
        sure=0.75,
        saying=["different collectives"],
    ),
    recognises(  # until NCCL 2.11
        wreckage(
            "NCCL WARN NET/IB : collective mismatch error local size 256 remote 1024 addr 7f94 "
            "rkey 8106 seq 5/5"
        ),
        sure=0.75,
        saying=["different collectives"],
    ),
    recognises(
        wreckage(
            "[1,2]<stderr>:FailedPreconditionError: Mismatched ALLREDUCE CPU/GPU device selection: "
            "One rank specified device GPU, but another rank specified device CPU."
        ),
        sure=0.88,
        rank=None,
        saying=["one rank specified device GPU, another specified device CPU"],
    ),
    recognises(
        wreckage(
            "Mismatched data types: One rank had type float32, but another rank had type int64."
        ),
        sure=0.88,
        rank=None,
        saying=["data types"],
    ),
    passes_over(wreckage("Mismatched brackets: One rank of seats, but another colour")),
    recognises(
        wreckage(
            "init.cc:1247 NCCL WARN Mismatched collective detected, please check your collective "
            "calls at and around rank 3."
        ),
        sure=0.75,
        saying=["different collectives"],
    ),
    recognises(
        OTHER_SIZE,
        sure=0.85,
        rank=2,
        victims=[0, 1, 3],
        saying=["ranks 0-1,3 all_reduce [1024] Float in #11", "rank 2 all_reduce [2048]"],
    ),
    recognises(OTHER_OP, sure=0.6, rank=2, saying=["broadcast"]),
    recognises(
        a_job(recorders={0: stood(11), 1: stood(11, shape="[8] Float")}, world=2),
        sure=0.75,
        what="rank 0 versus rank 1",
        saying=["different collectives"],
    ),
    recognises(
        a_job(differ("OpType=ALLREDUCE, TensorShape=[4]", "OpType=ALLREDUCE, TensorShape=[8]")),
        sure=0.75,
        what="rank 0 versus rank 1",
        saying=["torch compared", "[4]", "[8]"],
    ),
    recognises(
        a_job(
            differ(
                "SequenceNumber=7, OpType=ALLREDUCE, TensorShape=[90000]",
                "SequenceNumber=7, OpType=ALLREDUCE, TensorShape=[80000]",
            ),
            differ(
                "SequenceNumber=7, OpType=ALLREDUCE, TensorShape=[80000]",
                "SequenceNumber=7, OpType=ALLREDUCE, TensorShape=[90000]",
                ranks=(2, 0),
            ),
        ),
        sure=0.65,
        rank=0,
        saying=["[90000]"],
    ),
    recognises(
        a_job(
            "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running "
            "inconsistent collective: CollectiveFingerPrint(OpType=ALLREDUCE, TensorShape=[4]"
        ),
        sure=0.75,
        saying=["differ"],
    ),
    recognises(
        a_job(
            "[rank1]: RuntimeError: DDP expects same model across all ranks, but Rank 1 has 148 "
            "params, while rank 0 has inconsistent 146 params."
        ),
        sure=0.85,
        rank=1,
        saying=["different models"],
    ),
    recognises(
        a_job(
            "[enforce fail at gloo/transport/tcp/pair.cc:454] op.preamble.length <= op.nbytes. "
            "32 vs 16"
        ),
        sure=0.75,
        rank=None,
        saying=["a different size than it expected"],
    ),
    recognises(
        a_job(
            "node-a:4:9 [0] bootstrap.cc:40 NCCL WARN Message truncated : received 1024 bytes "
            "instead of 256"
        ),
        sure=0.45,
        rank=None,
        saying=["started NCCL differently"],
    ),
    passes_over(HEALTHY),
    passes_over(STUCK),
    # Dumps know types, a watchdog's words do not: that is no difference.
    passes_over(
        a_job(
            *map(timed_out, range(2)),
            recorders={0: stood(11), 1: stood(11, shape="[[1024]]")},
            dumped=[0],
            world=2,
        )
    ),
)
