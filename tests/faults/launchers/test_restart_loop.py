from __future__ import annotations

from holdfast.analysis.scene.scene import Failure
from tests.analysis.logs.patterns.jobs import HEALTHY, a_job, a_raise
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import a_scene


def failure(
    slug: str = "python-exception", ranks: tuple[int, ...] = (2,), step: int = 20
) -> Failure:
    return Failure(slug=slug, ranks=ranks, step=step, lasted=12.0)


def without_steps(lasted: float) -> Failure:
    return Failure(slug="rank-killed", ranks=(2,), step=0, lasted=lasted)


LONG = Failure(slug="python-exception", ranks=(2,), step=20, lasted=700.0)

test_run = run_table(
    "restart-loop",
    notices(
        a_scene(failures=(failure(step=3), failure(), failure())),
        ranks=[2],
        certain=True,
        fatal=True,
        saying=["python-exception on rank 2 after step 20, twice in a row"],
    ),
    notices(
        a_scene(failures=(failure(step=0), failure(step=0))),
        ranks=[2],
        certain=True,
        fatal=True,
        saying=["before the first step"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene(failures=(failure(),))),
    overlooks(a_scene(failures=(failure(), failure(step=21)))),
    overlooks(a_scene(failures=(failure(), failure(ranks=(1,))))),
    overlooks(a_scene(failures=(failure(), failure(slug="rank-killed")))),
    overlooks(a_scene(failures=(failure(), failure(step=9), failure()))),
    notices(  # however long it took to get there
        a_scene(failures=(LONG, LONG)),
        ranks=[2],
        certain=True,
        fatal=True,
        saying=["after step 20"],
    ),
    notices(
        a_scene(failures=(without_steps(540.0), without_steps(520.0))),
        ranks=[2],
        certain=True,
        fatal=True,
        saying=["after 8 minutes without a step that could be seen"],
    ),
    overlooks(a_scene(failures=(without_steps(540.0), without_steps(300.0)))),
)


AGAIN = "[default] Worker group FAILED. {}/3 attempts left; will restart worker group"

test_explain = explain_table(
    "restart-loop",
    recognises(
        a_job(
            AGAIN.format(2),
            AGAIN.format(1),
            raised=[a_raise(1, "ValueError", "bad row 17", order=n) for n in (1, 5, 9)],
        ),
        sure=0.4,
        rank=None,
        saying=["2 times", "ValueError each time"],
    ),
    recognises(a_job("  Reason: CrashLoopBackOff"), sure=0.5, rank=None, saying=["each time"]),
    passes_over(a_job(AGAIN.format(2), raised=[a_raise(1, "ValueError", "bad row 17")])),
    passes_over(
        a_job(
            AGAIN.format(2),
            AGAIN.format(1),
            raised=[a_raise(1, "ValueError", "bad"), a_raise(0, "KeyError", "lr")],
        )
    ),
    passes_over(HEALTHY),
)
