from __future__ import annotations

import msgspec

from holdfast.analysis.scene.scene import RankView
from tests.analysis.logs.patterns.jobs import (
    HEALTHY,
    RESET,
    STUCK,
    VANISHED,
    a_job,
    an_exit,
    timed_out,
)
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.ras.answers import launched
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import NOW, a_rank, a_scene, an_activity


def stopped(rank: int, *, seconds: float = 3.4, state: str = "T") -> RankView:
    return a_rank(rank, activity=an_activity(state=state), state_since=NOW - seconds)


test_run = run_table(
    "rank-frozen",
    notices(
        a_scene([a_rank(0), stopped(1), a_rank(2)]),
        ranks=[1],
        victims=[0, 2],
        certain=True,
        saying=["rank 1 (pid 4001) has been stopped (state T) for 3.4 s", "kill -CONT 4001"],
    ),
    # the whole job was suspended
    notices(
        a_scene([stopped(0), stopped(1)]),
        ranks=[0, 1],
        victims=[],
        certain=False,
        saying=["all ranks are, so the job was suspended"],
    ),
    # no other rank waits for it
    notices(a_scene([stopped(0)]), ranks=[0], victims=[], certain=False, saying=["(state T)"]),
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


test_explain = explain_table(
    "rank-frozen",
    recognises(
        wreckage(ras=(launched(7, 7, 7, silent=[1], states={601: "T"}),)),
        sure=0.9,
        rank=1,
        victims=[0, 2],
        saying=["rank 1 (pid 601 on 192.0.2.2) is stopped", "kill -CONT 601"],
    ),
    passes_over(wreckage(ras=(launched(7, 7, 7, silent=[1]),))),
    passes_over(wreckage(ras=(launched(7, 7, 7, silent=[1, 2], states={601: "T", 602: ""}),))),
    recognises(
        a_job("[1]+  Stopped                 torchrun --nproc-per-node 4 train.py"),
        sure=0.75,
        saying=["was stopped", "kill -CONT"],
    ),
    recognises(a_job("[rank2]: State:\tT (stopped)"), sure=0.75, rank=2, saying=["SIGSTOP"]),
    recognises(
        VANISHED,
        sure=0.55,
        rank=2,
        victims=[0, 1, 3],
        saying=["no connection to it closed", "or it ended or was killed without closing one"],
    ),
    # Its launcher lists how the others ended, and would have ended them at once.
    recognises(
        msgspec.structs.replace(VANISHED, exits=(an_exit(0, -6), an_exit(1, -6))),
        sure=0.65,
        rank=2,
        saying=["or its machine is", "a script that hangs would still have answered"],
    ),
    recognises(
        a_job(*map(timed_out, (0, 1, 3))),
        sure=0.25,
        rank=2,
        saying=["its process is stopped, or it hangs somewhere else"],
    ),
    passes_over(HEALTHY),
    passes_over(RESET),
    passes_over(STUCK),
    passes_over(a_job("[rank2]: Training has stopped early at epoch 3")),
)
