"""A rank that waits for another one's word in the store says so itself: nothing else shows it."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.analysis.collectives import waits
from holdfast.analysis.scene.scene import Recorder, Scene
from holdfast.faults.collectives.rank_stuck import others_wait_for_it
from holdfast.run.watch.verdict import consider
from tests.run.scenes import NOW, STARTED, a_beat, a_rank, ended

IDLE = Recorder(collectives=(), entered={}, finished={})


def a_scene(awaited: list[int | None], phase: str = "") -> Scene:
    """Steps ended 6 s ago; rank 0 sits somewhere."""
    ranks = tuple(
        a_rank(rank, beat=a_beat(step_at=NOW - 6.0, phase=phase, waits_for=whom), recorder=IDLE)
        for rank, whom in enumerate(awaited)
    )
    return Scene(
        now=NOW, attempt=0, started_at=STARTED, ranks=ranks, longest_pause=0.0, oom_kills=0,
        kernel_events=(), told_to_stop="", evidence_at=NOW,
    )  # fmt: skip


def test_the_one_that_is_waited_for_is_named() -> None:
    verdict = others_wait_for_it(a_scene([None, 0, 0, 0]))
    assert verdict is not None
    assert (verdict.ranks, verdict.victims) == ((0,), (1, 2, 3))
    assert "ranks 1-3 wait for it in the store" in verdict.reason


def test_it_leads_on_to_whom_that_one_waits_for() -> None:
    seen = waits.analyse(a_scene([2, 0, None]))
    assert (seen.roots, seen.victims) == ((2,), (0, 1))


def test_a_rank_that_has_ended_is_gone_and_said_to_have_left_early() -> None:
    scene = a_scene([2, None, 2])
    left = msgspec.structs.replace(ended(2, 0, at=NOW - 5.0), recorder=None)
    waiting = tuple(
        msgspec.structs.replace(v, beat=a_beat(step_at=NOW - 6.0, waits_for=2))
        for v in scene.ranks[:2]
    )
    scene = msgspec.structs.replace(scene, ranks=(*waiting, left))
    assert [(w.rank, w.absent, w.gone) for w in waits.analyse(scene).waits] == [
        (0, (), (2,)),
        (1, (), (2,)),
    ]
    opinion = consider(scene)
    assert opinion.broken == ()
    assert opinion.verdict is not None
    assert (opinion.verdict.slug, opinion.verdict.ranks) == ("rank-exits-early", (2,))
    assert "still wait for it" in opinion.verdict.reason


def test_a_rank_that_nobody_knows_is_waited_for_by_none() -> None:
    opinion = consider(a_scene([None, 7, 7]))
    assert opinion == (None, ())


@pytest.mark.parametrize("phase", ["evaluation", "waits for rank 0", ""])
def test_the_users_own_words_accuse_no_rank(phase: str) -> None:
    assert waits.analyse(a_scene([None, None], phase)).roots == ()


def test_a_step_since_makes_it_stale() -> None:
    scene = a_scene([None, 0])
    ranks = (msgspec.structs.replace(scene.ranks[0], beat=a_beat(step_at=NOW + 1)), scene.ranks[1])
    assert waits.analyse(msgspec.structs.replace(scene, ranks=ranks)).roots == ()
