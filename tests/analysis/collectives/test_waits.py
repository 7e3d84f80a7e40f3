"""Who waits for whom, over one group and several, with and without evidence."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.analysis.collectives.groups import is_default
from holdfast.analysis.collectives.mismatch import find_mismatch
from holdfast.analysis.collectives.waits import analyse, where_is
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Recorder, Scene
from tests.run.scenes import (
    IN_BACKWARD,
    IN_BARRIER,
    IN_SAVE,
    IN_SLEEP,
    NOW,
    PAST,
    STEPS,
    WALL,
    a_beat,
    a_rank,
    a_recorder,
    a_scene,
    a_stack,
    changed,
    entry,
    held_up,
    waiting,
)

UNSEEN = Unread(why="no socket")


def test_one_rank_is_missing() -> None:
    seen = analyse(held_up({2: {}}))
    assert (seen.roots, seen.victims, seen.deadlock) == ((2,), (0, 1, 3), ())
    wait = seen.of(0)
    assert wait is not None
    assert (wait.title, wait.absent, wait.timeout, wait.sure) == (
        "all_reduce #101",
        (2,),
        1800.0,
        True,
    )
    assert seen.of(2) is None


def test_nobody_is_missing_when_all_have_come() -> None:
    seen = analyse(held_up({}))
    assert (seen.roots, seen.victims, seen.mismatch) == ((), (), None)


def parallel(stuck: int) -> Scene:
    """Two tensor-parallel pairs, two data-parallel pairs; one of four ranks stuck.

    1: {0, 1}  2: {2, 3}   3: {0, 2}  4: {1, 3}
    """
    pairs = {"1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}
    views = []
    for rank in range(4):
        groups = [group for group, members in pairs.items() if rank in members]
        past = [entry(n, group=group) for group in groups for n in (1, 2)]
        mine = next(g for g in ("1", "2") if rank in pairs[g])
        other = next(g for g in ("3", "4") if rank in pairs[g])
        if rank == stuck:
            now = []
        elif stuck in pairs[mine]:
            now = [entry(3, group=mine, finished=False)]
        else:
            # its own pair got through, and waits for the next one in the other pair
            now = [entry(3, group=mine), entry(3, group=other, finished=False)]
        stack = IN_SLEEP if rank == stuck else IN_BACKWARD
        beat = a_beat(step_at=NOW - 6)
        views.append(a_rank(rank, recorder=a_recorder(*past, *now), stack=stack, beat=beat))
    return a_scene(views, evidence_at=NOW)


@pytest.mark.parametrize("stuck", range(4))
def test_the_root_is_found_through_several_groups(stuck: int) -> None:
    seen = analyse(parallel(stuck))
    assert seen.roots == (stuck,)
    assert seen.victims == tuple(r for r in range(4) if r != stuck)
    assert seen.deadlock == ()


def test_a_group_nobody_else_was_seen_in_closes_the_circle() -> None:
    alone = a_recorder(*PAST, entry(1, group="7", op="barrier", finished=False))
    seen = analyse(held_up({2: {"recorder": alone, "stack": IN_BARRIER}}))
    assert seen.deadlock == (0, 1, 2, 3)
    assert seen.roots == ()
    wait = seen.of(2)
    assert wait is not None
    assert wait.title == "barrier #1 of group 7"


def test_what_was_only_started_is_no_wait() -> None:
    """It issued an asynchronous collective elsewhere, and now saves: the others wait for it."""
    started = a_recorder(*PAST, entry(1, group="7", finished=False))
    seen = analyse(held_up({2: {"recorder": started, "stack": IN_SAVE}}))
    assert (seen.roots, seen.deadlock) == ((2,), ())


@pytest.mark.parametrize("missing", [None, UNSEEN])
def test_without_its_recorder_it_is_suspect_only_when_all_others_wait(
    missing: Unread | None,
) -> None:
    one = held_up({2: {"recorder": missing}})
    assert analyse(one).roots == (2,)
    assert analyse(changed(one, 3, recorder=missing, stack=IN_SLEEP)).roots == ()
    assert analyse(changed(one, 2, stack=IN_BARRIER)).roots == ()


def test_stale_evidence_says_nothing() -> None:
    scene = changed(held_up({2: {}}), 3, beat=a_beat(step_at=NOW))
    assert analyse(scene).roots == ()
    assert analyse(msgspec.structs.replace(scene, evidence_at=0.0)).waits == ()


def test_several_in_flight_wait_for_the_first_that_is_missed() -> None:
    ahead = waiting(entry(STEPS + 1, finished=False), entry(STEPS + 2, finished=False))
    scene = held_up({2: {}}, victim={"recorder": ahead})
    assert analyse(changed(scene, 1, recorder=waiting())).roots == (2,)


def test_default_groups_of_two_backends() -> None:
    assert is_default("0")
    assert is_default("0 (gloo)")
    assert not is_default("10")


def test_words() -> None:
    assert where_is(a_rank(0, stack=IN_SAVE)) == "in save() at ckpt.py:40"
    assert where_is(a_rank(0)) == "at a place that could not be seen"
    assert where_is(a_rank(0, stack=a_stack())) == "at a place its stack does not show"
    named = a_rank(0, stack=IN_SAVE, beat=a_beat(phase="save"))
    assert where_is(named).endswith("(phase 'save')")


def test_how_long_they_have_waited_in_this_one_collective() -> None:
    silent = held_up({2: {}}, seconds=7.0, evidence_wall=0.0)
    assert [w.seconds for w in analyse(silent).waits] == pytest.approx(
        [4.9] * 3
    )  # counters are coarse
    # NCCL's waiting ranks are busy: the recorder knows better, and is believed for Gloo as well.
    entered = entry(STEPS + 1, finished=False, created=WALL)
    busy = {"recorder": waiting(entered), "alive_at": NOW}
    asked = held_up({2: {}}, victim=busy, evidence_wall=WALL + 4.0)
    assert [w.seconds for w in analyse(asked).waits] == pytest.approx([4.0] * 3)


# --- mismatches --------------------------------------------------------------------------------


def with_shapes(*shapes: str, ranks: int | None = None) -> Scene:
    scene = held_up({}, ranks=ranks or len(shapes))
    for rank, shape in enumerate(shapes):
        recorder = waiting(entry(STEPS + 1, shape=shape, finished=False))
        scene = changed(scene, rank, recorder=recorder)
    return scene


@pytest.mark.parametrize(
    ("shapes", "odd", "undecided"),
    [
        (("[4] Float", "[8] Float", "[4] Float"), (1,), False),
        (("[4] Float", "[4] Half", "[4] Float"), (1,), False),
        (("[4] Float", "[8] Float"), (0, 1), True),
        (("[4] Float", "[8] Float", "[8] Float", "[4] Float"), (0, 1, 2, 3), True),
        (("[4] Float", "[8] Float", "[9] Float", "[4] Float"), (1, 2), False),
        (("[[4], [2]] Float", "[6] Float", "[7] Float"), (2,), False),
    ],
)
def test_the_majority_is_right(
    shapes: tuple[str, ...], odd: tuple[int, ...], undecided: bool
) -> None:
    found = find_mismatch(with_shapes(*shapes))
    assert found is not None
    assert (found.odd, found.undecided, found.sequence) == (odd, undecided, STEPS + 1)


@pytest.mark.parametrize("same", ["[2, 2] Float", "[4] Float", "[[1], [3]] Float"])
def test_what_moves_the_same_is_the_same(same: str) -> None:
    assert find_mismatch(with_shapes("[4] Float", same, "[4] Float")) is None


def test_what_was_usual_decides_when_others_can_not_be_asked() -> None:
    """Two are left of four, one of them with what all did before."""
    scene = with_shapes("[4] Float", "[8] Float", ranks=4)
    for rank in (2, 3):
        scene = changed(scene, rank, recorder=UNSEEN)
    found = find_mismatch(scene)
    assert found is not None
    assert (found.odd, found.right, found.undecided) == ((1,), (0,), False)


def test_a_recorder_that_lost_its_past_says_nothing_about_it() -> None:
    """The ring is full: one rank no longer has the entry the others wait in."""
    empty = Recorder(collectives=(), entered={"0": STEPS + 1}, finished={"0": STEPS})
    scene = changed(held_up({}), 1, recorder=empty)
    assert find_mismatch(scene) is None
    assert analyse(scene).roots == ()
