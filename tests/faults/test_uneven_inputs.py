from __future__ import annotations

from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import (
    IN_BARRIER,
    STEPS,
    a_stack,
    changed,
    entry,
    held_up,
    waiting,
)

A_BARRIER = waiting(entry(STEPS + 1, op="barrier", shape="", finished=False))
LARGER = waiting(entry(STEPS + 1, shape="[[8]] Float", finished=False))
EARLIER = a_stack(*((f.function, f.file, f.line - 20) for f in IN_BARRIER.frames))

test_notice = notice_table(
    "uneven-inputs",
    notices(
        changed(held_up({}), 2, recorder=A_BARRIER, stack=IN_BARRIER),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=[
            "rank 2 (pid 4002) is past the loop, in barrier() at train.py:44",
            "while ranks 0-1,3 are still in backward",
            "or only it runs that code",
        ],
    ),
    overlooks(held_up({})),
    overlooks(changed(held_up({}), 2, recorder=LARGER, stack=IN_BARRIER)),
    overlooks(changed(held_up({}), 2, recorder=A_BARRIER, stack=EARLIER)),
    overlooks(changed(held_up({}), 2, recorder=A_BARRIER, stack=None)),
    overlooks(changed(held_up({}, ranks=2), 1, recorder=A_BARRIER, stack=IN_BARRIER)),
)
