"""What the screen says of the running job."""

from __future__ import annotations

import pytest

from holdfast.analysis.drill.outcome import Spoken
from holdfast.analysis.drill.progress import happens_now
from holdfast.analysis.drill.records import RankAttempt
from holdfast.analysis.drill.rehearsal import JobShape
from tests.analysis.drill.jobs import rank_attempt

JOB = JobShape(ranks=4, steps=60)
UNKNOWN = JobShape(ranks=1, steps=0)
BEFORE = rank_attempt(0, until=12, t=100.0)
"""ends at 107"""
AGAIN = rank_attempt(0, attempt=1, base=10, until=15, t=115.0)
LOADING = rank_attempt(0, attempt=1, base=10, until=10, t=115.0)
NAMED = Spoken(t=107.8, kind="verdict", slug="rank-killed")
EARLIER = Spoken(t=101.0, kind="notice", slug="cpu-contention")
LINE = Spoken(t=108.0, kind="line")


@pytest.mark.parametrize(
    ("attempts", "said", "injected", "words"),
    [
        ([], [], None, "starting 4 ranks"),
        ([rank_attempt(0, until=0, t=100.0)], [], None, "starting 4 ranks"),
        ([BEFORE], [], None, "step 12 of 60"),
        ([BEFORE], [EARLIER], 107.5, "fault 13 s ago, not noticed yet"),
        ([BEFORE], [EARLIER, NAMED], 107.5, "named rank-killed after 0.3 s"),
        ([BEFORE], [LINE], 107.5, "named by the launcher after 0.5 s"),
        ([BEFORE, LOADING], [NAMED], 107.5, "named rank-killed after 0.3 s, starting again"),
        ([BEFORE, AGAIN], [NAMED], 107.5,
         "named rank-killed after 0.3 s, 5 steps since the restart"),
        ([BEFORE, AGAIN], [], 107.5, "fault 13 s ago, 5 steps since the restart"),
        ([BEFORE], [NAMED], 103.0, "named rank-killed after 4.8 s, step 12 of 60"),
        ([], [], 99.0, "fault 21 s ago, not noticed yet"),
    ],
)  # fmt: skip
def test_in_a_few_words(
    attempts: list[RankAttempt], said: list[Spoken], injected: float | None, words: str
) -> None:
    assert happens_now(attempts, said, JOB, injected=injected, now=120.4) == words


def test_of_the_undisturbed_job_the_end_is_not_known() -> None:
    assert happens_now([BEFORE], [], UNKNOWN, injected=None, now=120) == "step 12"
    assert happens_now([], [], UNKNOWN, injected=None, now=120) == "starting the ranks"
