"""A job that still runs: where its ranks are, and which rank the others wait for."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import catalogue
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import RankView, Scene, Stack
from holdfast.explain import from_scene
from holdfast.explain.diagnose import Explanation, diagnose
from holdfast.findings import Diagnosis
from holdfast.run.watch import verdict
from holdfast.view import diagnosis
from tests.run.scenes import (
    IN_BACKWARD,
    IN_BARRIER,
    IN_SAVE,
    IN_SLEEP,
    NOW,
    TORCH,
    a_rank,
    a_scene,
    a_stack,
    an_activity,
    held_up,
)


def under_torchrun(*stacks: Stack | Unread, busy: tuple[int, ...] = ()) -> Scene:
    """No page, no recorder, no hook: what `explain --pid` sees of anybody's job."""
    views = [
        a_rank(r, beat=None, stack=s, alive_at=NOW if r in busy else NOW - 3.5)
        for r, s in enumerate(stacks)
    ]
    return a_scene(views, evidence_at=NOW)


def explained(scene: Scene, *, still: bool = True, world: int = 4) -> Explanation:
    said = verdict.judge(scene, standstill=still)
    wreckage = from_scene.wreckage(scene, said, standstill=still, world=world)
    return diagnose(wreckage, [entry.fault for entry in catalogue.entries()])


def first(report: Explanation) -> Diagnosis:
    assert report.diagnoses
    return report.diagnoses[0]


@pytest.mark.parametrize(
    ("stacks", "rank", "sure"),
    [
        ((IN_BACKWARD, IN_BACKWARD, IN_SLEEP, IN_BACKWARD), 2, 0.6),
        ((IN_SAVE, IN_BARRIER, IN_BARRIER, IN_BARRIER), 0, 0.6),
        ((IN_BARRIER, IN_BACKWARD, IN_BACKWARD, IN_SLEEP), 3, 0.6),
    ],
)
def test_the_rank_that_is_elsewhere_is_named(
    stacks: tuple[Stack, ...], rank: int, sure: float
) -> None:
    found = first(explained(under_torchrun(*stacks)))
    assert (found.slug, found.confidence) == ("rank-stuck", sure)
    assert found.culprit
    assert (found.culprit.rank, found.culprit.pid, found.culprit.host) == (rank, 4000 + rank, "a")
    assert set(found.victims) == set(range(4)) - {rank}
    assert found.next == f"py-spy dump --pid {4000 + rank}"


def test_ranks_on_other_machines_make_us_less_sure() -> None:
    scene = under_torchrun(IN_BACKWARD, IN_BACKWARD, IN_SLEEP, IN_BACKWARD)
    assert first(explained(scene, world=8)).confidence == 0.4


@pytest.mark.parametrize(
    "scene",
    [
        under_torchrun(IN_BACKWARD, IN_BACKWARD, IN_BACKWARD, IN_BACKWARD),
        under_torchrun(IN_SLEEP, IN_SLEEP, IN_SLEEP, IN_SLEEP),
        under_torchrun(IN_SLEEP, IN_SAVE, IN_BARRIER, IN_BARRIER, busy=(0, 1, 2, 3)),
        a_scene(),
    ],
)
def test_no_rank_is_named_where_stacks_do_not_tell_one_from_the_others(scene: Scene) -> None:
    report = explained(scene, world=len(scene.ranks))
    assert not report.diagnoses
    assert not report.failed


def test_two_ranks_are_told_apart_by_what_they_do() -> None:
    """A rank in backward() that uses no processor waits; one that does may compute, or spin."""
    found = first(explained(under_torchrun(IN_BACKWARD, IN_SLEEP), world=2))
    assert (found.culprit and found.culprit.rank, found.grade.value) == (1, "likely")
    found = first(explained(under_torchrun(IN_BACKWARD, IN_SLEEP, busy=(0,)), world=2))
    assert (found.culprit and found.culprit.rank, found.grade.value) == (1, "possible")
    assert "rank 0: whether it waits or computes: a rank does both in backward()" in found.unknown


def test_all_that_idle_ranks_wait_for_are_named() -> None:
    found = first(explained(under_torchrun(IN_SLEEP, IN_SAVE, IN_BARRIER, IN_BARRIER)))
    assert found.reason.startswith("ranks 0-1 are in load()")
    assert (found.victims, found.grade.value) == ((2, 3), "possible")


ALL = frozenset(range(4))


@pytest.mark.parametrize(
    ("busy", "still", "stands"),
    [
        ((), ALL, True),
        ((0, 1, 2, 3), ALL, True),
        ((2,), ALL - {2}, True),  # the one elsewhere works, and the others do nothing
        ((0, 1, 2, 3), ALL - {2}, False),  # as in any job
        ((), ALL - {0, 2}, False),
        ((0, 1, 2, 3), frozenset(), False),
    ],
)
def test_stacks_count_where_those_that_wait_did_nothing(
    busy: tuple[int, ...], still: frozenset[int], stands: bool
) -> None:
    scene = under_torchrun(IN_BACKWARD, IN_BACKWARD, IN_SLEEP, IN_BACKWARD, busy=busy)
    assert from_scene.stands_still(scene, still) is stands


@pytest.mark.parametrize(
    ("stacks", "busy", "still", "sentence"),
    [
        ((IN_BACKWARD, IN_BACKWARD), (), {0, 1}, "Every rank here waits in backward()"),
        ((IN_BACKWARD, IN_BACKWARD), (0, 1), {0, 1}, ""),
        ((IN_BACKWARD, IN_SLEEP), (0, 1), {0}, "Rank 0 is in backward(), rank 1 elsewhere."),
        ((IN_BACKWARD, IN_SLEEP), (0, 1), {1}, ""),
        ((IN_SLEEP, IN_SLEEP), (), {0, 1}, "No rank did anything meanwhile"),
        ((IN_SLEEP, IN_SLEEP), (1,), {0, 1}, ""),
        ((Unread(why="not permitted"),) * 2, (), set(), "No stack could be read"),
    ],
)
def test_what_is_odd_is_said_where_no_rank_is_named(
    stacks: tuple[Stack | Unread, ...], busy: tuple[int, ...], still: set[int], sentence: str
) -> None:
    scene = under_torchrun(*stacks, busy=busy)
    said = from_scene.undecided(scene, frozenset(still), world=2)
    assert said.startswith(sentence)
    assert bool(said) is bool(sentence)
    shown = diagnosis.report((), failed=False, anomalies=(), remarks=(),
                             places=from_scene.places(scene), undecided=said)  # fmt: skip
    assert ("Nothing wrong was seen" in shown) is not bool(sentence)


IN_DDP = a_stack(
    ("_verify_param_shape_across_processes", f"{TORCH}/distributed/utils.py", 290),
    ("__init__", f"{TORCH}/nn/parallel/distributed.py", 860),
    ("build", "/home/me/train.py", 12),
)


@pytest.mark.parametrize("elsewhere", [IN_BACKWARD, IN_DDP], ids=["backward", "DDP's constructor"])
def test_ranks_that_wait_in_different_collectives_are_not_blamed(elsewhere: Stack) -> None:
    """The one whose collective leaves no frame, or DDP's constructor, has passed the other's."""
    scene = under_torchrun(elsewhere, IN_BARRIER)
    assert explained(scene, world=2).diagnoses == ()
    said = from_scene.undecided(scene, frozenset({0, 1}), world=2)
    assert "not in the same one" in said
    assert "`holdfast explain collective-mismatch`" in said


def test_a_rank_that_builds_its_model_waits_for_the_one_that_does_not() -> None:
    found = first(explained(under_torchrun(IN_DDP, IN_SLEEP), world=2))
    assert (found.slug, found.culprit and found.culprit.rank) == ("rank-stuck", 1)


def test_ranks_that_all_wait_may_wait_for_another_machine() -> None:
    scene = under_torchrun(IN_BACKWARD, IN_BACKWARD)
    said = from_scene.undecided(scene, frozenset({0, 1}), world=4)
    assert "The job has 4 ranks: look at those on the other machines too." in said


def test_a_job_that_moves_is_well_wherever_its_ranks_are() -> None:
    scene = under_torchrun(IN_BACKWARD, IN_BACKWARD, IN_SLEEP, IN_BACKWARD)
    report = explained(scene, still=False)
    assert (report.diagnoses, report.failed) == ((), False)
    text = diagnosis.report((), failed=False, anomalies=(), remarks=(),
                            places=from_scene.places(scene))  # fmt: skip
    assert text.startswith("Nothing wrong was seen in this job")
    assert "  rank 2: in load() at data.py:88 (stack of pid 4002)" in text


def test_recorders_count_at_once_when_no_rank_moves() -> None:
    """Another program's look at a rank moves its counters: it seems alive without any progress."""
    hangs = held_up({1: {"alive_at": NOW, "beat": None}}, ranks=2, seconds=4.0,
                    victim={"alive_at": NOW, "beat": None})  # fmt: skip
    scene = msgspec.structs.replace(
        hangs, started_at=NOW - 9.0, evidence_wall=hangs.evidence_wall + 4.0
    )
    found = first(explained(scene, world=2))
    assert (found.slug, found.culprit and found.culprit.rank) == ("rank-stuck", 1)
    assert not explained(scene, still=False, world=2).diagnoses


def test_a_stopped_rank_is_shown_as_such() -> None:
    stopped: RankView = a_rank(1, activity=an_activity(state="T"), stack=IN_SLEEP)
    (place,) = from_scene.places(a_scene([stopped]))
    assert place.quote == "in load() at data.py:88 (stopped: state T)"


def test_a_frozen_rank_of_a_living_job_leads() -> None:
    frozen = a_rank(1, beat=None, activity=an_activity(state="T"), state_since=NOW - 3.5,
                    alive_at=NOW - 3.5, stack=IN_SLEEP)  # fmt: skip
    others = [a_rank(r, beat=None, stack=IN_BACKWARD, alive_at=NOW - 3.5) for r in (0, 2, 3)]
    found = first(explained(a_scene([others[0], frozen, *others[1:]], evidence_at=NOW)))
    assert found.slug == "rank-frozen"
    assert found.culprit
    assert found.culprit.rank == 1
