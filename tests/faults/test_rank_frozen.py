from __future__ import annotations

from holdfast.signals import RankView
from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import NOW, a_rank, a_scene, an_activity


def stopped(rank: int, *, seconds: float = 3.4, state: str = "T") -> RankView:
    return a_rank(rank, activity=an_activity(state=state), state_since=NOW - seconds)


test_notice = notice_table(
    "rank-frozen",
    notices(
        a_scene([a_rank(0), stopped(1), a_rank(2)]),
        ranks=[1],
        victims=[0, 2],
        certain=True,
        saying=["rank 1 (pid 4001) is stopped (state T) for 3.4 s", "kill -CONT 4001"],
    ),
    # somebody suspended the whole job
    notices(
        a_scene([stopped(0), stopped(1)]),
        ranks=[0, 1],
        victims=[],
        certain=False,
        saying=["all ranks are, so somebody suspended the whole job"],
    ),
    notices(
        a_scene([a_rank(0), stopped(1, state="t")]),
        ranks=[1],
        certain=False,
        saying=["held by a debugger"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene([a_rank(0), stopped(1, seconds=2.0)])),
    overlooks(a_scene([a_rank(0), stopped(1, state="D", seconds=90)])),
)
