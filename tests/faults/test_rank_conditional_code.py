from __future__ import annotations

from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import (
    IN_BARRIER,
    IN_SAVE,
    NOW,
    PAST,
    STEPS,
    TORCH,
    WALL,
    a_recorder,
    a_stack,
    changed,
    entry,
    held_up,
)

OTHER = entry(1, group="5", op="barrier", shape="", finished=False)
IN_RECV = a_stack(
    ("recv", f"{TORCH}/distributed/distributed_c10d.py", 2500), ("train", "/home/me/train.py", 50)
)
ALONE = a_recorder(*PAST, OTHER)
KNOWN = (entry(1, group="5"), entry(2, group="5", op="barrier", shape="", finished=False))
IN_KNOWN = a_recorder(*PAST, *KNOWN)
BEFORE = a_recorder(*PAST, KNOWN[0], entry(STEPS + 1, finished=False))
CROSSED = held_up({2: {"recorder": ALONE, "stack": IN_BARRIER}})

test_notice = notice_table(
    "rank-conditional-code",
    notices(
        CROSSED,
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=[
            "rank 2 waits in barrier #1 of group 5 (in barrier() at train.py:44)",
            "where nobody else comes; ranks 0-1,3 wait in all_reduce #101 for it",
        ],
    ),
    notices(
        held_up({2: {"recorder": IN_KNOWN, "stack": IN_BARRIER}}, victim={"recorder": BEFORE}),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=["barrier #2 of group 5"],
    ),
    notices(
        held_up({1: {"recorder": ALONE, "stack": IN_BARRIER}}, ranks=2),
        ranks=[0, 1],
        certain=True,
        saying=["undecided", "rank 0 waits in all_reduce #101", "rank 1 waits in barrier #1"],
    ),
    # NCCL makes the second group's connections only now: no recorder knows of that collective,
    # and its own threads keep a core busy meanwhile
    notices(
        held_up({2: {"stack": IN_BARRIER, "alive_at": NOW}}),
        ranks=[2],
        victims=[0, 1, 3],
        certain=False,
        saying=["rank 2 waits in barrier (in barrier() at train.py:44)", "where nobody else comes"],
    ),
    # a message that Gloo never records may have come just now
    overlooks(held_up({2: {"stack": IN_RECV, "alive_at": NOW}})),
    # it may be that it only started it, and saves meanwhile: without its stack nothing is sure
    overlooks(changed(CROSSED, 2, stack=IN_SAVE, alive_at=NOW)),
    overlooks(changed(CROSSED, 2, stack=None)),
    notices(
        held_up({2: {"recorder": IN_KNOWN, "stack": None}}, victim={"recorder": BEFORE}),
        ranks=[2],
        certain=False,
        saying=["rank 2"],
    ),
    # no steps, but collectives go on: they have only just come to these
    overlooks(
        changed(
            held_up(
                {2: {"recorder": ALONE, "stack": IN_BARRIER}},
                evidence_wall=WALL + (STEPS + 1) * 0.05 + 0.3,
            ),
            2,
            alive_at=NOW,
        )
    ),
    overlooks(held_up({})),
    overlooks(held_up({2: {}})),
    overlooks(changed(CROSSED, 0, recorder=None)),
)
