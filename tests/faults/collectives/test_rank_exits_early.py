from __future__ import annotations

import signal

import msgspec

from holdfast.faults.collectives.rank_exits_early import SEVERAL
from tests.analysis.collectives.nccl_documents import Written
from tests.analysis.collectives.test_gpu_side import a_job as gpu_job
from tests.analysis.logs.patterns.jobs import HEALTHY, STUCK, a_job, an_exit, lost, stood, timed_out
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import (
    NOW,
    STEPS,
    TIMED_OUT,
    WALL,
    a_beat,
    a_rank,
    a_scene,
    changed,
    elsewhere,
    ended,
    held_up,
    lost_its_peer,
    words,
)

LEFT = {"death": ended(2, 0, at=NOW - 6).death, "recorder": None, "stack": None}
WAITED_FOR = changed(held_up({}), 2, **LEFT)
JUST_COME = changed(held_up({}, evidence_wall=WALL + (STEPS + 1) * 0.05 + 0.3), 2, **LEFT)

PAIRS = {"dp 0,2": (0, 2), "dp 1,3": (1, 3), "tp 0,1": (0, 1), "tp 2,3": (2, 3)}
MESH = [
    Written(PAIRS).past(1, group="dp 0,2").collective("started", group="dp 0,2"),
    Written(PAIRS).past(1, group="dp 1,3").collective("started", group="dp 1,3"),
    Written(PAIRS),
    Written(PAIRS).past(1, group="dp 1,3").collective("started", group="tp 2,3"),
]

test_run = run_table(
    "rank-exits-early",
    notices(
        a_scene([lost_its_peer(0), lost_its_peer(1), ended(2, 0), a_rank(3)]),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=[
            "rank 2 (pid 4002) exited with code 0 after step 100",
            "then ranks 0-1 lost the connection to it",
        ],
    ),
    notices(
        WAITED_FOR,
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=["ranks 0-1,3 still wait for it"],
    ),
    notices(
        changed(WAITED_FOR, 1, stack=None),
        ranks=[2],
        certain=False,
        saying=["still wait for it"],
    ),
    # NCCL aborted its communicators, which completes all collectives; its watchdog says why
    notices(
        changed(changed(a_scene(), 2, **LEFT), 0, lost_peer=True),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=["then rank 0 lost the connection to it"],
    ),
    # of a mesh: rank 1 shares no group with it, and waits behind rank 3
    notices(
        changed(gpu_job(MESH), 2, **LEFT),
        ranks=[2],
        victims=[0, 1, 3],
        certain=False,
        saying=["ranks 0,3 still wait for it"],
    ),
    # rank 1 is late itself
    overlooks(changed(gpu_job([MESH[0], Written(PAIRS), *MESH[2:]]), 2, **LEFT)),
    # no rank left last words
    notices(
        a_scene([ended(0, 0, at=NOW - 2), ended(1, 1, at=NOW - 1.9)]),
        ranks=[0],
        certain=True,
        saying=["rank 0 (pid 4000): exited with code 0"],
    ),
    # ranks without a group cannot pull each other down: rank 1 left with its own code
    overlooks(
        a_scene(
            [
                ended(0, 0, at=NOW - 2),
                msgspec.structs.replace(ended(1, 7, at=NOW - 1.9), beat=a_beat(group_ready=False)),
            ]
        )
    ),
    overlooks(JUST_COME),  # the others seem to continue without it
    overlooks(a_scene()),
    overlooks(a_scene([a_rank(0), ended(1, 0, at=NOW - 60)])),  # in peace
    overlooks(a_scene([ended(0, 0, at=NOW - 60), ended(1, -signal.SIGKILL), lost_its_peer(2)])),
    # their timeouts expired over another rank
    overlooks(
        a_scene(
            [
                ended(0, 0, at=NOW - 60),
                ended(1, 1, said=words("RuntimeError", TIMED_OUT)),
                a_rank(2, beat=a_beat(step_at=NOW - 9)),
            ]
        )
    ),
    overlooks(changed(WAITED_FOR, 1, recorder=elsewhere())),  # they wait for rank 1
    overlooks(changed(WAITED_FOR, 1, recorder=None)),
)


SPAWNED = [
    f"process 100{n} spawned with command: ['python', 'train.py', '--local_rank={n}']"
    for n in range(3)
]

ROOT = ("Root Cause (first observed failure):",)

test_explain = explain_table(
    "rank-exits-early",
    recognises(
        wreckage(
            *map(lost, (0, 2)),
            "Root Cause (first observed failure):",
            "Sending process 1000 closing signal SIGTERM",
            exits=(an_exit(2, 1, first=True), an_exit(0, -15, teardown=True)),
        ),
        sure=0.75,
        rank=1,
        victims=[0, 2],
        saying=["torchrun lists all other ranks"],
    ),
    recognises(  # an excerpt: neither the number of ranks nor the end of another one is shown
        wreckage(
            lost(1), "Root Cause (first observed failure):", exits=(an_exit(1, 1, first=True),)
        ),
        sure=0.4,
        rank=0,
        victims=[1],
        saying=["torchrun lists all other ranks"],
    ),
    recognises(  # nothing else to list, nothing else to end
        wreckage(SEVERAL.example, lost(0), *ROOT, exits=(an_exit(0, 1, first=True),)),
        sure=0.65,
        what="a rank other than rank 0",
        victims=[0],
        saying=["neither lists as failed nor had to end: it had exited normally, with code 0"],
        not_saying=["other machines"],
    ),
    recognises(
        wreckage(lost(0), *ROOT, exits=(an_exit(0, 1, first=True),)),
        sure=0.4,
        what="a rank other than rank 0",
        saying=["unless the job has ranks on other machines"],
    ),
    passes_over(  # it may be the one that it had to end
        wreckage(
            SEVERAL.example,
            lost(0),
            "Sending process 1001 closing signal SIGTERM",
            *ROOT,
            exits=(an_exit(0, 1, first=True),),
        )
    ),
    passes_over(  # several have failed: they may be all
        wreckage(
            SEVERAL.example,
            lost(0),
            lost(1),
            *ROOT,
            exits=(an_exit(0, 1, first=True), an_exit(1, 1)),
        )
    ),
    recognises(  # a group that was not destroyed: sys.exit(0) ends in an abort
        wreckage(
            "terminate called without an active exception",
            lost(0),
            exits=(an_exit(1, -6, first=True), an_exit(0, -15, teardown=True)),
        ),
        sure=0.65,
        rank=1,
        victims=[0],
        saying=["was exiting while rank 0 still needed it", "aborted it (SIGABRT)"],
    ),
    passes_over(  # it had lost its peer before it ended like that
        wreckage(
            "terminate called without an active exception",
            lost(0),
            lost(1),
            exits=(an_exit(1, -6, first=True),),
        )
    ),
    passes_over(  # it was ended, too: who is not listed cannot be told from who left
        wreckage(
            *map(lost, (0, 2)),
            "Root Cause (first observed failure):",
            "Sending process 1000 closing signal SIGTERM",
            "Sending process 1001 closing signal SIGTERM",
            exits=(an_exit(2, 1, first=True), an_exit(0, -15, teardown=True)),
        )
    ),
    recognises(
        wreckage(*SPAWNED, "Process 1001 exits successfully.", *map(lost, (0, 2))),
        sure=0.8,
        rank=1,
        victims=[0, 2],
        saying=["exits successfully"],
    ),
    passes_over(wreckage(*SPAWNED, *(f"Process 100{n} exits successfully." for n in range(3)))),
    recognises(
        a_job(*map(lost, (0, 1, 3)), finished=[2]),
        sure=0.8,
        rank=2,
        victims=[0, 1, 3],
        saying=["exited normally"],
    ),
    recognises(
        a_job(
            "[rank2]: NCCL INFO comm 0x1b67 rank 2 nranks 4 cudaDev 0 busId 60 - Destroy COMPLETE",
            *map(timed_out, (0, 1, 3)),
        ),
        sure=0.6,
        rank=2,
        saying=["rank 2"],
    ),
    passes_over(HEALTHY),
    passes_over(STUCK),
    passes_over(a_job(*map(lost, (0, 1, 3)), finished=[2], exits=[an_exit(0, -9, first=True)])),
    passes_over(a_job(recorders={0: stood(11), 1: stood(11)}, world=2)),
)
