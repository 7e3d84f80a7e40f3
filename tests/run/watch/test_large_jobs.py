"""Jobs of 1,024 ranks are judged like small ones, and at no higher cost for each rank."""

from __future__ import annotations

import time

import pytest

from holdfast.analysis.collectives import waits
from holdfast.analysis.scene.scene import Policy, Scene
from holdfast.run.watch import decide, verdict
from tests.run.big_scenes import BIG, big_scene

FEW, MANY = 64, 1024
CULPRIT = FEW // 2 + 1
SLUGS = {
    "healthy": "",
    "one stuck": "rank-stuck",
    "one killed": "rank-killed",
    "another size": "collective-mismatch",
    "one aborted": "collective-mismatch",
    "in a circle": "rank-conditional-code",
    "some left early": "rank-exits-early",
    "all raised": "python-exception",
    "half joined": "ranks-missing",
    "one slow": "slow-rank",
}


@pytest.mark.parametrize("name", BIG)
def test_what_is_said_of_them(name: str) -> None:
    opinion = verdict.consider(big_scene(name, FEW))
    assert not opinion.broken
    found = opinion.verdict
    assert (found.slug if found else "") == SLUGS[name.partition(",")[0]]
    if found is not None and name.startswith(("one ", "another ")):
        assert found.ranks == (CULPRIT,)
        assert f"rank {CULPRIT} (node e, pid {4000 + CULPRIT})" in found.reason


@pytest.mark.parametrize("name", ["in a circle", "half joined", "some left early"])
def test_a_sentence_about_many_ranks_can_still_be_read(name: str) -> None:
    found = verdict.judge(big_scene(name, MANY))
    assert found is not None
    assert len(found.reason) < 1500


def judged(scene: Scene) -> float:
    """Processor seconds of a verdict and a decision."""
    began = time.process_time()
    found = verdict.judge(scene)
    history = decide.remember(scene.now, scene, found, decide.StallHistory())
    decide.decide(scene.now, scene, found, Policy(patience=5.0, max_restarts=3), history)
    return time.process_time() - began


def cost_of_a_rank(name: str, ranks: int, laps: int) -> float:
    return min(judged(big_scene(name, ranks)) for _ in range(laps)) / ranks


@pytest.mark.parametrize("name", ["healthy, NCCL", "one stuck, NCCL", "one killed, Gloo"])
def test_a_rank_of_a_large_job_costs_no_more_than_one_of_a_small_job(name: str) -> None:
    """Anything that compares all ranks with all would cost sixteen times as much."""
    for laps in (1, 2, 4):  # once more where the machine was busy with something else
        few, many = cost_of_a_rank(name, FEW, 4 * laps), cost_of_a_rank(name, MANY, laps)
        if many <= 3 * few:
            return
    pytest.fail(f"{many * 1e6:.0f} us a rank of {MANY}, {few * 1e6:.0f} us a rank of {FEW}")


@pytest.mark.long
@pytest.mark.parametrize("name", BIG)
def test_nor_in_any_other_trouble(name: str) -> None:
    few, many = cost_of_a_rank(name, FEW, 10), cost_of_a_rank(name, MANY, 3)
    assert many <= 4 * few


def test_only_the_group_of_the_stuck_rank_waits_for_it_itself() -> None:
    seen = waits.analyse(big_scene("one stuck, NCCL", FEW))
    direct = [w.rank for w in seen.waits if CULPRIT in w.absent]
    assert direct == [r for r in range(CULPRIT % 8, FEW, 8) if r != CULPRIT]
