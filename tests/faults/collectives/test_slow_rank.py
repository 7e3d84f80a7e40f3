from __future__ import annotations

from collections.abc import Callable

from holdfast.analysis.nodes.isolation import JudgedNode
from holdfast.analysis.scene.scene import Collective, Recorder, Scene
from tests.analysis.logs.patterns.jobs import HEALTHY, a_job, stood, timed_out
from tests.faults import between
from tests.faults.made_nodes import name_of, some_nodes
from tests.faults.made_smokes import smoked
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import NOW, STEPS, WALL, a_rank, a_recorder, a_scene, entry


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


test_run = run_table(
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


def _arriving(late: float) -> Recorder:
    """Sixteen collectives, one a second, entered that much after the second began."""
    return Recorder(
        collectives=tuple(
            Collective(
                group="0",
                sequence=n,
                op="all_reduce",
                backend="gloo",
                shape="[4] Float",
                finished=True,
                created=100.0 + n + late,
                timeout=600.0,
            )
            for n in range(1, 17)
        ),
        entered={"0": 16},
        finished={"0": 16},
    )


LATE = {0: _arriving(0.0), 1: _arriving(0.01), 2: _arriving(0.6)}

test_explain = explain_table(
    "slow-rank",
    recognises(
        a_job(recorders=LATE, world=3),
        sure=0.7,
        rank=2,
        victims=[0, 1],
        saying=["rank 2 was last in 16 of the last 16"],
    ),
    recognises(a_job(timed_out(0), recorders=LATE, world=3), sure=0.25, rank=2, saying=["rank 2"]),
    passes_over(HEALTHY),
    passes_over(a_job(recorders=LATE, world=4)),
    passes_over(a_job(recorders={0: stood(11), 1: stood(11)}, world=2)),
)


B, C = name_of(1), name_of(2)
WORK = JudgedNode(name=B, why="a product of matrices takes it 9 ms at best")

test_check_nodes = between.table(
    "slow-rank",
    between.speaks(
        "warning",
        smoked(8, fleet={"slow": {C}}),
        saying=["node-c is a straggler", "it is slow with", "the median of the nodes is"],
        hosts=[C],
    ),
    between.speaks(
        "warning",
        smoked(8, fleet={"slow": {C}}, slow_alone=(WORK,)),
        saying=["node-c is a straggler", "node-b is a straggler", "a product of matrices"],
        hosts=[B, C],
        count=2,
    ),
    between.speaks(
        "note",
        smoked(16, fleet={"slow": {name_of(n) for n in (0, 1, 2, 8, 9, 10)}}),
        saying=["speeds differ too much", "more than a quarter"],
    ),
    between.silent(smoked(8)),
    between.silent(smoked(8, fleet={"bad": {C}})),
    between.skips(smoked(2), saying=["no median"]),
    between.not_applicable(some_nodes(3), saying=["add --smoke"]),
)
