from __future__ import annotations

import signal
from typing import Any

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Scene
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import NOW, RESET, a_beat, a_rank, a_scene, an_activity, ended, held_up, words


def limited(scene: Scene, *ranks: int, over: float = 0.3, **beat: Any) -> Scene:
    """The same scene, with these ranks in a section whose time is over."""
    return msgspec.structs.replace(
        scene,
        ranks=tuple(
            msgspec.structs.replace(
                view,
                beat=msgspec.structs.replace(
                    view.beat or a_beat(), limit_name="forward", limit_until=NOW - over, **beat
                ),
            )
            if view.rank in ranks
            else view
            for view in scene.ranks
        ),
    )


STUCK = held_up({2: {}})
RAISED = a_rank(2, words=words("RuntimeError", RESET))

test_run = run_table(
    "limit-exceeded",
    notices(
        limited(STUCK, 2),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=[
            (
                'rank 2 (pid 4002) exceeded the deadline of "forward" by 0.3 s, '
                "in load() at data.py:88"
            ),
            "a longer deadline",
        ],
    ),
    # the job continues meanwhile: the others have not come to the collective yet
    notices(limited(a_scene(), 1), ranks=[1], certain=True, saying=["could not be seen"]),
    notices(
        limited(held_up({2: {"stack": Unread(why="not allowed")}}), 2),
        ranks=[2],
        certain=True,
        saying=["at a place that could not be seen"],
    ),
    # ranks that wait are not to blame: the one that never came is
    notices(
        limited(STUCK, 0),
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        saying=[
            (
                'rank 0 (pid 4000) exceeded the deadline of "forward" by 0.3 s, '
                "waiting in all_reduce #101"
            ),
            "for rank 2 (pid 4002), which is in load() at data.py:88",
        ],
    ),
    notices(
        limited(STUCK, 0, 1, 2, 3),
        ranks=[2],
        certain=True,
        saying=["rank 2 (pid 4002) exceeded", "(ranks 0-1,3 too), in load() at data.py:88"],
    ),
    # all wait in the same collective, or two may be the one
    notices(limited(held_up({}), 0), ranks=[], certain=True, saying=["so no rank is blamed"]),
    overlooks(a_scene()),
    overlooks(limited(STUCK, 2, over=-5.0)),
    overlooks(limited(STUCK, 2, over=0.05)),  # it may be saying so at this moment
    overlooks(limited(a_scene([ended(2, -signal.SIGABRT)]), 2)),
    overlooks(limited(a_scene([RAISED]), 2)),
    overlooks(limited(held_up({2: {"activity": an_activity(state="t")}}), 2)),
)

RAN_OUT = "holdfast> deadline 'forward' passed and rank 2 (pid 4711) is still in that section"

SPARED = "holdfast> section 'forward' ended meanwhile, so the process is not killed"

test_explain = explain_table(
    "limit-exceeded",
    recognises(wreckage(RAN_OUT), sure=0.7, rank=2, saying=["'forward'", "longer deadline"]),
    recognises(
        wreckage("[rank1]: " + RAN_OUT.replace("rank 2", "this process")),
        sure=0.7,
        rank=1,
        saying=["this process"],
    ),
    passes_over(
        wreckage(
            RAN_OUT, "holdfast> section 'forward' ended meanwhile, so the process is not killed"
        )
    ),
    passes_over(wreckage("TimeoutError: the time limit has run out")),
)
