from __future__ import annotations

import msgspec

from holdfast.facts import Unread
from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import (
    IN_BACKWARD,
    IN_BARRIER,
    IN_SAVE,
    NOW,
    STEPS,
    TIMED_OUT,
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

test_notice = notice_table(
    "rank-stuck",
    notices(
        STUCK,
        ranks=[2],
        victims=[0, 1, 3],
        certain=False,
        saying=[
            "rank 2 (pid 4002) has been in load() at data.py:88 for 6.0 s, without",
            "a sign of life for 6.0 s; ranks 0-1,3 wait for it in all_reduce #101",
        ],
    ),
    notices(
        held_up({0: {"stack": IN_SAVE, "alive_at": NOW}}),
        ranks=[0],
        victims=[1, 2, 3],
        certain=False,
        saying=["in save() at ckpt.py:40 for 6.0 s, at work; ranks 1-3 wait"],
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
    # no steps, but collectives go on: the others have only just come to this one
    overlooks(held_up({2: {}}, evidence_wall=WALL + (STEPS + 1) * 0.05 + 0.4)),
    notices(
        held_up({2: {"alive_at": NOW - 0.6}}, evidence_wall=WALL + (STEPS + 1) * 0.05 + 1.5),
        ranks=[2],
        certain=False,
        saying=["for 1.6 s; ranks 0-1,3 wait"],  # counters are too coarse to say more
    ),
    overlooks(held_up({2: {}}, seconds=0.5)),  # in every healthy step somebody waits
    overlooks(held_up({})),  # all are in it: nobody is late
    overlooks(changed(STUCK, 0, beat=a_beat(step_at=NOW))),  # it went on since we looked
    # a rank that waits elsewhere, for a message say, is not the one to blame
    overlooks(held_up({2: {"stack": IN_BARRIER}})),
    # two of which nothing is known: either may be the one
    overlooks(held_up({1: {"recorder": UNSEEN}, 2: {"recorder": UNSEEN}})),
    overlooks(changed(STUCK, 2, recorder=waiting(), stack=IN_BACKWARD)),
)
