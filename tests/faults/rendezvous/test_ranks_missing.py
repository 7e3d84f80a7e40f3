from __future__ import annotations

from collections.abc import Mapping

from holdfast.analysis.machine import Reach, Unread
from holdfast.analysis.scene.scene import Scene
from tests.analysis.logs.patterns.jobs import HEALTHY, a_job, timed_out
from tests.check.smoke.smokes import a_smoke, error, exit_of, late, started, up_to, verdict
from tests.faults import between
from tests.faults.machines import a_machine
from tests.faults.made_nodes import absent, some_nodes
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
    silent,
    skips,
    speaks,
)
from tests.run.node_scenes import spread
from tests.run.scenes import IN_SLEEP, NOW, TORCH, a_beat, a_rank, a_scene, a_stack

DROPPED = (Reach(address="127.0.0.1", port=1, error="ETIMEDOUT", seconds=0.5),)
GONE = verdict([*up_to("start", (0, 1, 3)), started(2), exit_of(2, "start", 0)])
STOPPED = verdict([*up_to("start"), late(2, "store", "T")])
TAKEN = verdict([*up_to("start"), error(0, "store", "name: EADDRINUSE")])

test_check = check_table(
    "ranks-missing",
    speaks(
        "error",
        a_machine(smoke=GONE),
        saying=[
            "was missing in stage 'start'",
            "rank 2 (pid 102) ended with exit code 0",
            "ranks 0-1,3 are not to blame",
            "[rank 2/4] pid 102 finished no stage and exited with code 0",
        ],
    ),
    speaks("error", a_machine(smoke=STOPPED), saying=["rank 2 (pid 102) does not run"]),
    silent(a_machine(smoke=a_smoke())),
    silent(a_machine(smoke=TAKEN)),  # it failed, but all ranks were there
    skips(a_machine(smoke=verdict([], loopback=DROPPED)), saying=["ended at stage 'loopback'"]),
    skips(a_machine(smoke=Unread(why="torch is broken")), saying=["torch is broken"]),
    not_applicable(a_machine(), saying=["not asked for: add --smoke"]),
)

EARLY = a_beat(group_ready=False, steps=0, step_at=0.0, usual_step=0.0, group_timeout=0.0)
JOINING = a_stack(
    ("_new_process_group_helper", f"{TORCH}/distributed/distributed_c10d.py", 2000),
    ("init_process_group", f"{TORCH}/distributed/distributed_c10d.py", 1700),
    ("main", "/home/me/train.py", 9),
)
THERE = {"beat": EARLY, "stack": JOINING}
LATE = {"beat": EARLY, "stack": IN_SLEEP}
UNHEARD = {"beat": None}


def starting(*ranks: Mapping[str, object], seconds: float = 12.0) -> Scene:
    views = [a_rank(n, **changes) for n, changes in enumerate(ranks)]
    return a_scene(views, started_at=NOW - seconds, evidence_at=NOW)


test_run = run_table(
    "ranks-missing",
    notices(
        starting(THERE, THERE, LATE, THERE),
        ranks=[2],
        victims=[0, 1, 3],
        certain=False,
        saying=[
            "3 of 4 ranks have joined after 12.0 s; rank 2 (pid 4002) has not",
            "at data.py:88",
        ],
    ),
    notices(
        starting({"beat": EARLY}, UNHEARD),
        ranks=[1],
        victims=[0],
        certain=False,
        saying=["1 of 2 ranks", "1 of 2 ranks started their heartbeat"],
    ),
    notices(
        spread(starting(THERE, THERE, LATE, THERE)),
        ranks=[2],
        certain=False,
        saying=[
            "rank 2 (node node-b, pid 4002) has not",
            "`py-spy dump --pid 4002` on node node-b",
        ],
    ),
    overlooks(a_scene()),
    overlooks(starting(THERE, LATE, seconds=5.0)),
    overlooks(starting(THERE, THERE)),
    overlooks(starting(UNHEARD, UNHEARD)),  # no hook: HOLDFAST=off
    overlooks(starting({"beat": EARLY}, {"beat": EARLY})),
    overlooks(starting({**THERE, "beat": a_beat(group_ready=True)}, UNHEARD)),
)


JOINED = "DistStoreError: Timed out after 601 seconds waiting for clients. 3/4 clients joined."
START = "[rank{0}]: NCCL INFO comm 0x1b rank {0} nranks 4 cudaDev 0 busId 60 - Init START"

test_explain = explain_table(
    "ranks-missing",
    recognises(
        a_job(JOINED, world=None),
        sure=0.85,
        what="1 ranks that never joined",
        saying=["3 of 4 ranks joined", "the others never joined"],
    ),
    recognises(a_job(JOINED, logs=(0, 1, 3)), sure=0.85, rank=2, saying=["rank 2 left no trace"]),
    recognises(
        a_job(
            "[rank0]: RuntimeError: Timed out initializing process group in store based barrier on "
            "rank: 0, for key: store_based_barrier_key:1 (world_size=4, worker_count=2, "
            "timeout=0:30:00)"
        ),
        sure=0.85,
        what="2 ranks",
        saying=["2 of 4"],
    ),
    recognises(
        a_job(*(START.format(r) for r in (0, 1, 3)), stages={2: 0}),
        sure=0.6,
        rank=2,
        victims=[0, 1, 3],
        saying=["rank 2 did not get that far"],
    ),
    passes_over(HEALTHY),
    passes_over(a_job("4/4 clients joined.")),
    passes_over(a_job(timed_out(1))),
    passes_over(a_job(*(START.format(r) for r in range(4)))),
)


# --- between nodes -------------------------------------------------------------------------------

test_check_nodes = between.table(
    "ranks-missing",
    between.speaks(
        "error",
        absent(some_nodes(3), "", "3 of 4 nodes came within 10 s"),
        saying=["3 of 4 nodes came: node-a, node-b and node-c", "within 10 s", "--nnodes"],
        hosts=[""],
    ),
    between.silent(some_nodes(3)),
    between.silent(absent(some_nodes(3), "node-d", "Connection refused")),  # node-lost names it
)
