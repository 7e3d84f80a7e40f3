from __future__ import annotations

from tests.analysis.logs.patterns.jobs import (
    HEALTHY,
    STUCK,
    a_job,
    a_raise,
    a_stack,
    stood,
    timed_out,
)
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import NOW, a_beat, an_activity, changed, held_up

MUTE = a_beat(step_at=NOW - 6, beat_at=NOW - 5.8)
BUSY = held_up({2: {"beat": MUTE, "alive_at": NOW}})

test_run = run_table(
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
    overlooks(held_up({2: {}})),  # its beat continues
    overlooks(changed(BUSY, 2, activity=an_activity(state="T"))),
    overlooks(changed(BUSY, 2, beat=None)),
    overlooks(changed(BUSY, 2, beat=a_beat(step_at=NOW - 6, beat_at=0.0))),  # no torch yet
    overlooks(changed(BUSY, 2, beat=a_beat(step_at=NOW - 6, beat_at=NOW - 5.8, phase="exit"))),
    overlooks(changed(BUSY, 0, beat=MUTE)),  # the machine starves: all beats are late
)


HEARTBEAT = (
    "[rank0]: [PG 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making "
    "progress in monitoring enqueued collectives."
)
GIL = "[rank0]: Could not acquire GIL within 300 ms on exit, possible GIL induced hang"

test_explain = explain_table(
    "gil-held",
    recognises(a_job(HEARTBEAT, GIL), sure=0.9, rank=0, saying=["native code held it"]),
    recognises(a_job(HEARTBEAT), sure=0.35, rank=0, saying=["or a CUDA call"]),
    recognises(
        a_job(
            *map(timed_out, (0, 1, 3)),
            recorders={0: stood(11), 1: stood(11), 2: stood(10, 10), 3: stood(11)},
            stacks={2: a_stack("tokenise", "data.py", holds_gil=True)},
        ),
        sure=0.6,
        rank=2,
        saying=["held the GIL", "data.py:30"],
    ),
    passes_over(HEALTHY),
    passes_over(STUCK),
    passes_over(a_job(HEARTBEAT, raised=[a_raise(1, "ValueError", "bad batch")])),
)
