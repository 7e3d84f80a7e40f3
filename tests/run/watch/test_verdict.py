"""Which fault is named when several might be, and what no scene can make it say."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import catalogue
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.fault import Broken
from holdfast.findings import Verdict
from holdfast.run.watch import verdict as verdicts
from holdfast.run.watch.verdict import judge
from tests.run.scenes import (
    ENFORCE,
    IN_BACKWARD,
    IN_BARRIER,
    IN_SAVE,
    IN_SLEEP,
    NOW,
    PAST,
    RESET,
    STEPS,
    TIMED_OUT,
    a_beat,
    a_rank,
    a_recorder,
    a_scene,
    an_activity,
    changed,
    elsewhere,
    ended,
    entry,
    held_up,
    lost_its_peer,
    nothing_known,
    waiting,
    words,
)

LARGER = waiting(entry(STEPS + 1, shape="[8] Float", finished=False))
A_BARRIER = waiting(entry(STEPS + 1, op="barrier", shape="", finished=False))
OTHER_GROUP = a_recorder(*PAST, entry(1, group="5", op="barrier", finished=False))
STUCK = held_up({2: {}})
MUTE = a_beat(step_at=NOW - 6, beat_at=NOW - 5)


def said(scene: Scene) -> tuple[str, tuple[int, ...], bool] | None:
    verdict = judge(scene)
    return (verdict.slug, verdict.ranks, verdict.certain) if verdict else None


def test_of_two_faults_one_always_comes_first() -> None:
    priorities = [e.fault.traits.priority for e in catalogue.entries() if e.fault.traits]
    assert len(set(priorities)) == len(priorities)


@pytest.mark.parametrize("scene", [a_scene(), nothing_known(), a_scene(())])
def test_nothing_to_say(scene: Scene) -> None:
    assert judge(scene) is None


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize(
    ("slug", "certain", "culprit"),
    [
        ("rank-stuck", False, {}),
        ("gil-held", False, {"beat": MUTE, "alive_at": NOW}),
        ("driver-hang", False, {"activity": an_activity(state="D"), "state_since": NOW - 11}),
        ("rank-frozen", True, {"activity": an_activity(state="T"), "state_since": NOW - 4}),
        ("collective-mismatch", True, {"recorder": LARGER, "stack": IN_BACKWARD}),
        ("uneven-inputs", True, {"recorder": A_BARRIER, "stack": IN_BARRIER}),
        ("rank-conditional-code", True, {"recorder": OTHER_GROUP, "stack": IN_BARRIER}),
    ],
)
def test_one_rank_holds_the_others_up(
    slug: str, certain: bool, culprit: dict[str, Any], rank: int
) -> None:
    assert said(held_up({rank: culprit}, seconds=12.0)) == (slug, (rank,), certain)


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize(
    ("slug", "code", "last"),
    [
        ("rank-killed", -signal.SIGKILL, None),
        ("native-crash", -signal.SIGSEGV, None),
        ("external-sigterm", -signal.SIGTERM, None),
        ("sighup-terminal", -signal.SIGHUP, None),
        ("python-exception", 1, words("ValueError", "bad", at=NOW - 1.1)),
        ("python-exception", 3, None),
        ("gpu-oom", 1, words("OutOfMemoryError", "CUDA out of memory", at=NOW - 1.1)),
        ("disk-full", 1, words("OSError", "[Errno 28] No space left", at=NOW - 1.1)),
        (
            "dataloader-killed",
            1,
            words("RuntimeError", "DataLoader worker (pid 9) is killed by signal: Killed. "),
        ),
        ("rank-exits-early", 0, None),
    ],
)
def test_one_rank_takes_the_others_with_it(slug: str, code: int, last: Any, rank: int) -> None:
    views = [lost_its_peer(r) for r in range(4)]
    views[rank] = ended(rank, code, at=NOW - 1.0, said=last)
    assert said(a_scene(views)) == (slug, (rank,), True)


def test_gloo_aborts_a_victim() -> None:
    """Rank 1 sent too much; rank 0 died of it, and the others of that."""
    abort = words("gloo::EnforceNotMet", ENFORCE, where="", at=NOW - 1)
    scene = changed(held_up({1: {"recorder": LARGER, "stack": None}}, seconds=1.5), 2, words=None)
    dead = ended(0, -signal.SIGABRT).death
    scene = changed(scene, 0, death=dead, words=abort, recorder=None, stack=None)
    for rank in (1, 2, 3):
        scene = changed(scene, rank, words=lost_its_peer(rank).words)
    assert said(scene) == ("collective-mismatch", (1,), True)
    # and when the abort left no words at all
    assert said(changed(scene, 0, words=None)) == ("collective-mismatch", (1,), True)


def test_memory_is_named_before_the_mere_kill() -> None:
    killed = a_scene([lost_its_peer(0), ended(1, -signal.SIGKILL)], oom_kills=1)
    assert said(killed) == ("host-oom", (1,), True)


def test_the_first_of_two_ends_is_the_cause() -> None:
    first = ended(3, 1, at=NOW - 2, said=words("ValueError", "bad", at=NOW - 3))
    scene = a_scene([a_rank(0), ended(1, -signal.SIGKILL, at=NOW - 1), lost_its_peer(2), first])
    assert said(scene) == ("python-exception", (3,), True)


def test_being_told_to_stop_comes_before_all_else() -> None:
    scene = a_scene([ended(0, -signal.SIGKILL), a_rank(1)], told_to_stop="SIGINT")
    assert said(scene) == ("external-sigterm", (), True)


def test_a_job_that_steps_is_not_held_up() -> None:
    """At any moment somebody waits for somebody."""
    assert judge(held_up({2: {}}, seconds=0.04)) is None
    slow = held_up({2: {}}, seconds=20.0, started_at=NOW - 900)
    page = a_beat(step_at=NOW - 20.0, usual_step=15.0)
    for rank in range(4):
        slow = changed(slow, rank, beat=page)
    assert judge(slow) is None


def test_the_clocks_were_started_again() -> None:
    assert judge(STUCK) is not None
    assert judge(STUCK, timers_since=NOW - 1.0) is None


def test_a_face_that_breaks_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_scene: Scene) -> Verdict | None:
        raise ZeroDivisionError

    faces = catalogue.by_slug("rank-stuck").run_faces
    monkeypatch.setattr(catalogue.by_slug("slow-rank"), "run_faces", [broken])
    assert faces
    assert said(STUCK) == ("rank-stuck", (2,), False)
    assert verdicts.consider(STUCK).broken == (
        Broken("slow-rank", "broken", "ZeroDivisionError: "),
    )
    monkeypatch.undo()
    assert verdicts.consider(STUCK).broken == ()


# --- properties --------------------------------------------------------------------------------

UNSEEN = Unread(why="not permitted")
RECORDERS = st.sampled_from([None, UNSEEN, waiting(), elsewhere(), LARGER, A_BARRIER, OTHER_GROUP])
STACKS = st.sampled_from([None, UNSEEN, IN_BACKWARD, IN_SLEEP, IN_SAVE, IN_BARRIER])
AGES = st.sampled_from([0.0, 0.5, 1.0, 3.0, 6.0, 70.0])
WORDS = st.sampled_from(
    [("ValueError", "bad"), ("OSError", "[Errno 28]"), ("OutOfMemoryError", ""), ("MyError", "")]
    + [("RuntimeError", text) for text in (TIMED_OUT, ENFORCE, RESET)]
)
CODES = st.sampled_from([0, 0, 1, 3, -6, -9, -11, -15])


@st.composite
def rank_views(draw: st.DrawFn, rank: int) -> RankView:
    step = NOW - draw(AGES)
    beat = draw(st.none() | st.builds(a_beat, step_at=st.just(step), beat_at=AGES.map(NOW.__sub__)))
    view = a_rank(
        rank,
        beat=beat,
        activity=draw(st.none() | st.sampled_from("RSDTt").map(lambda s: an_activity(state=s))),
        alive_at=NOW - draw(AGES),
        state_since=NOW - draw(AGES),
        stack=draw(STACKS),
        recorder=draw(RECORDERS),
    )
    if draw(st.integers(0, 4)) == 0:
        kind, text = draw(WORDS)
        view = msgspec.structs.replace(view, words=words(kind, text, at=NOW - draw(AGES)))
    if draw(st.integers(0, 4)) == 0:
        death = ended(rank, draw(CODES), at=NOW - draw(AGES)).death
        view = msgspec.structs.replace(view, death=death, activity=None)
    return view


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    count = draw(st.integers(1, 5))
    return a_scene(
        [draw(rank_views(rank)) for rank in range(count)],
        started_at=NOW - draw(st.sampled_from([5.0, 100.0])),
        evidence_at=draw(st.sampled_from([0.0, NOW - 2.0, NOW])),
        oom_kills=draw(st.sampled_from([-1, 0, 1])),
        told_to_stop=draw(st.sampled_from(["", "", "", "SIGTERM"])),
    )


@given(scenes(), st.randoms(use_true_random=False))
def test_other_numbers_make_no_other_verdict(scene: Scene, random: Any) -> None:
    numbers = [view.rank for view in scene.ranks]
    random.shuffle(numbers)
    renamed = [
        msgspec.structs.replace(view, rank=number)
        for view, number in zip(scene.ranks, numbers, strict=True)
    ]
    renamed.sort(key=lambda view: view.rank)
    before, after = judge(scene), judge(msgspec.structs.replace(scene, ranks=tuple(renamed)))
    assert (before is None) == (after is None)
    if before and after:
        assert before.slug == after.slug
        assert before.certain == after.certain
        assert tuple(sorted(numbers[r] for r in before.ranks)) == after.ranks
        assert tuple(sorted(numbers[r] for r in before.victims)) == after.victims


@given(scenes(), st.data())
def test_less_evidence_never_makes_it_surer(scene: Scene, data: st.DataObject) -> None:
    fewer = scene
    for rank in data.draw(st.sets(st.sampled_from([v.rank for v in scene.ranks]))):
        lost = data.draw(st.sampled_from(["stack", "recorder"]))
        fewer = changed(fewer, rank, **{lost: data.draw(st.sampled_from([None, UNSEEN]))})
    with_all, with_less = judge(scene), judge(fewer)
    if with_less is not None and with_less.certain:
        assert with_all is not None
        assert with_all.certain


@given(scenes())
def test_who_went_on_or_waits_is_never_blamed(scene: Scene) -> None:
    verdict = judge(scene)
    if verdict is None or verdict.fatal:
        return
    assert not set(verdict.ranks) & set(verdict.victims)
    for rank in verdict.ranks:
        view = scene.rank(rank)
        if view.death is None and view.words is None and verdict.slug != "rank-frozen":
            assert (
                view.beat is None
                or view.beat.step_at <= scene.evidence_at
                or (verdict.slug == "ranks-missing")
            )


@given(scenes())
def test_no_face_raises_or_names_a_rank_twice_or_one_that_is_not_there(scene: Scene) -> None:
    known = {view.rank for view in scene.ranks}
    for entry_ in catalogue.entries():
        for face in entry_.fault.run_faces:
            verdict = face(scene)
            if verdict is not None:
                assert verdict.slug == entry_.fault.slug
                assert set(verdict.ranks) | set(verdict.victims) <= known
                assert set(verdict.ranks).isdisjoint(verdict.victims)
