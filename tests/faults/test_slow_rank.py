from __future__ import annotations

from collections.abc import Callable

from holdfast.signals import Scene
from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import NOW, STEPS, WALL, a_rank, a_recorder, a_scene, entry


def pace(lag: Callable[[int, int], float], *, step: float = 0.25, rounds: int = 20) -> Scene:
    """Each rank enters each collective so much later than the first could."""
    first = STEPS - rounds
    views = [
        a_rank(
            rank,
            recorder=a_recorder(
                *(
                    entry(first + n, created=WALL + n * step + lag(rank, n))
                    for n in range(1, rounds + 1)
                )
            ),
        )
        for rank in range(4)
    ]
    return a_scene(views, evidence_at=NOW)


test_notice = notice_table(
    "slow-rank",
    notices(
        pace(lambda rank, n: 0.2 if rank == 2 else 0.001 * rank),
        ranks=[2],
        victims=[0, 1, 3],
        certain=False,
        saying=[
            "rank 2 (pid 4002) is slow: last in 20 of the last 20 collectives, by 199 ms each",
            "spend 84% of the time waiting for it",
        ],
    ),
    overlooks(a_scene()),
    overlooks(pace(lambda rank, n: 0.001 * rank)),
    overlooks(pace(lambda rank, n: 0.2 if rank == n % 4 else 0.0)),  # they take turns
    overlooks(pace(lambda rank, n: 0.03 if rank == 0 else 0.0)),  # it writes the log
    overlooks(pace(lambda rank, n: 0.2 if rank == 2 else 0.0, rounds=5)),  # too soon to say
    overlooks(pace(lambda rank, n: 0.2 if rank == 2 and n == 7 else 0.0)),  # once is chance
)
