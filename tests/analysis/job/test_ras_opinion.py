"""NCCL's RAS as a second witness: it agrees, points elsewhere, or has nothing to say."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.analysis.job import ras_opinion
from holdfast.analysis.ras.answer import RasAnswer
from holdfast.analysis.scene.ras_look import RasLook
from holdfast.analysis.scene.scene import Scene
from holdfast.findings import Verdict
from holdfast.run.watch import verdict
from tests.analysis.ras.answers import answer
from tests.run.scenes import NOW, held_up
from tests.system.ras_server import job

STUCK = held_up({2: {}})
"""rank 2 of four is stuck; pids are 4000 to 4003"""


def ras(*counts: int, silent: tuple[int, ...] = (), dead: tuple[int, ...] = (), at: float = NOW - 1,
        first_pid: int = 4000) -> RasAnswer:  # fmt: skip
    return answer(job(*counts, silent=silent, dead=dead, first_pid=first_pid), at=at)


def beside(newest: RasAnswer, before: RasAnswer | None = None) -> Scene:
    look = RasLook(at=newest.at, answer=newest, before=before)
    return msgspec.structs.replace(STUCK, ras=look)


def judged(scene: Scene) -> Verdict:
    found = verdict.judge(scene)
    assert found is not None
    assert (found.slug, found.ranks) == ("rank-stuck", (2,))
    return found


ALONE = judged(STUCK)


BEHIND = "rank 2 has launched 8 AllReduce, the others 9"


@pytest.mark.parametrize(
    ("scene", "said"),
    [
        (beside(ras(9, 9, 9, 9, silent=(2,))), " agrees: rank 2 does not answer it"),
        (beside(ras(9, 9, 9, 9, dead=(2,))), " agrees: rank 2 does not answer it"),
        (beside(ras(9, 9, 8, 9)), f" agrees: {BEHIND}"),
        (beside(ras(9, 9, 8, 9), ras(9, 9, 8, 9, at=NOW - 3)), f" agrees: {BEHIND}"),
        (
            beside(ras(9, 9, 8, 9, silent=(1,))),
            f" agrees: rank 1 does not answer it and {BEHIND}",
        ),
        (
            beside(ras(9, 8, 9, 9)),
            " points elsewhere: rank 1 has launched 8 AllReduce, the others 9",
        ),
        (beside(ras(9, 9, 9, 9, silent=(0, 3))), " points elsewhere: ranks 0,3 do not answer it"),
        (
            beside(ras(9, 9, 8, 9), ras(8, 8, 7, 8, at=NOW - 3)),
            ": ranks have launched collectives since the last look, so the job may be moving",
        ),
    ],
)
def test_what_it_names_is_in_the_sentence(scene: Scene, said: str) -> None:
    found = judged(scene)
    assert found.reason == f"{ALONE.reason}; NCCL's RAS{said}"
    assert found.evidence[-1].source == "NCCL RAS"
    assert (found.ranks, found.victims, found.certain, found.fix) == (
        ALONE.ranks, ALONE.victims, ALONE.certain, ALONE.fix,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((9, 9, 9, 9), " and have launched the same collectives"),
        ((9, 9, 8, 8), "; 2 ranks have launched 9 AllReduce, 2 ranks fewer"),
        ((9, 8, 7, 8), "; 1 rank has launched 9 AllReduce, 3 ranks fewer"),
    ],
)
def test_what_it_does_not_decide_is_evidence_only(counts: tuple[int, ...], said: str) -> None:
    found = judged(beside(ras(*counts)))
    assert found.reason == ALONE.reason
    assert found.evidence[-1].quote == f"all 4 processes answer{said}"


@pytest.mark.parametrize(
    "scene",
    [
        beside(ras(9, 9, 8, 9, at=1.0)),  # before the last step
        beside(ras(9, 9, 8, 9, first_pid=77)),  # another job
    ],
)
def test_what_is_old_or_foreign_is_no_witness(scene: Scene) -> None:
    assert judged(scene) == ALONE
    assert ras_opinion.of(scene) is None


def test_a_snapshot_before_the_stall_is_not_compared_with() -> None:
    """The job moved on since: that says nothing of the stall."""
    found = judged(beside(ras(9, 9, 8, 9), ras(3, 3, 3, 3, at=1.0)))
    assert "agrees: rank 2" in found.reason
