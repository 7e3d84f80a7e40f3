from __future__ import annotations

from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import NOW, a_beat, an_activity, changed, held_up

MUTE = a_beat(step_at=NOW - 6, beat_at=NOW - 5.8)
BUSY = held_up({2: {"beat": MUTE, "alive_at": NOW}})

test_notice = notice_table(
    "gil-held",
    notices(
        BUSY,
        ranks=[2],
        victims=[0, 1, 3],
        certain=False,
        saying=[
            "rank 2 (pid 4002) has run no Python for 5.8 s: native code holds the GIL",
            "called in load() at data.py:88, and is busy; ranks 0-1,3 wait for it in all_reduce",
        ],
    ),
    notices(
        held_up({2: {"beat": MUTE}}),
        ranks=[2],
        certain=False,
        saying=["run no Python"],
        not_saying=["busy"],
    ),
    overlooks(held_up({})),
    overlooks(held_up({2: {}})),  # its beat goes on
    overlooks(changed(BUSY, 2, activity=an_activity(state="T"))),
    overlooks(changed(BUSY, 2, beat=None)),
    overlooks(changed(BUSY, 2, beat=a_beat(step_at=NOW - 6, beat_at=0.0))),  # no torch yet
    overlooks(changed(BUSY, 2, beat=a_beat(step_at=NOW - 6, beat_at=NOW - 5.8, phase="exit"))),
    overlooks(changed(BUSY, 0, beat=MUTE)),  # the machine starves: all beats are late
)
