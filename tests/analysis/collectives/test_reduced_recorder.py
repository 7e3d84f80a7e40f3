"""What is left out of a recorder on its way to the coordinator changes no verdict."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast import catalogue
from holdfast.analysis.collectives import arrivals
from holdfast.analysis.collectives.reduced_recorder import RECENT, reduced
from holdfast.analysis.scene.scene import Collective, Frame, Recorder, Scene
from holdfast.findings import Verdict
from holdfast.run.watch import verdict
from tests.analysis.collectives.meshes import Mesh, Play, again, timed
from tests.analysis.collectives.test_meshes import FSDP_TP, plays
from tests.faults.scenes import all_scenes
from tests.run.scenes import STEPS, a_recorder, entry

LINE = Frame(function="train", file="train.py", line=30)


def with_reduced_recorders(scene: Scene) -> Scene:
    return with_recorders(scene, reduced)


def with_recorders(scene: Scene, change: Callable[[Recorder], Recorder]) -> Scene:
    views = tuple(
        msgspec.structs.replace(v, recorder=change(v.recorder))
        if isinstance(v.recorder, Recorder)
        else v
        for v in scene.ranks
    )
    return msgspec.structs.replace(scene, ranks=views)


def with_a_long_past(recorder: Recorder) -> Recorder:
    """As a ring of 2,000 entries looks after an hour."""
    first = min((c.sequence for c in recorder.collectives if c.group == "0"), default=1)
    past = tuple(entry(n) for n in range(first - 300, first))
    return msgspec.structs.replace(recorder, collectives=(*past, *recorder.collectives))


def heard(scene: Scene) -> list[Verdict]:
    answers = [a for e in catalogue.entries() for a in e.fault.ask_run(scene)]
    return [answer for answer in answers if isinstance(answer, Verdict)]


def test_no_face_says_anything_else_of_the_scenes_in_its_tables() -> None:
    shortened = 0
    for name, scene in all_scenes():
        for whole in (scene, with_recorders(scene, with_a_long_past)):
            sent = with_reduced_recorders(whole)
            shortened += sent != whole
            assert heard(sent) == heard(whole), name
    assert shortened > 50


@given(plays(sizes=st.sampled_from([0, 0, 48])))
def test_nor_of_jobs_with_many_groups(play: Play) -> None:
    whole = play.scene()
    assert verdict.consider(with_reduced_recorders(whole)) == verdict.consider(whole)


def test_the_straggler_is_the_same_one() -> None:
    costs = dict.fromkeys(range(4), 0.01) | {2: 0.2}
    whole = timed(Mesh(2, 2), again(FSDP_TP, 80), costs, step=len(FSDP_TP))
    sent = with_reduced_recorders(whole)
    assert sent != whole
    late, still_late = arrivals.straggler(whole), arrivals.straggler(sent)
    assert late is not None
    assert still_late is not None
    assert (late.rank, late.group) == (still_late.rank, still_late.group) == (2, late.group)


def test_the_positions_the_open_entries_and_the_recent_past_stay() -> None:
    past = [entry(n) for n in range(1, 1001)]
    beside = [entry(n, group="3") for n in range(1, 11)]
    ahead = [entry(n, finished=False) for n in range(1001, 1501)]
    whole = a_recorder(*(framed(c) for c in (*past, *beside, *ahead)))
    sent = reduced(whole)
    assert (sent.entered, sent.finished) == (whole.entered, whole.finished)
    kept = [c.sequence for c in sent.collectives if c.group == "0"]
    assert kept == [*range(1001 - RECENT, 1001 + RECENT), *range(1501 - RECENT, 1501)]
    assert [c.sequence for c in sent.collectives if c.group == "3"] == list(range(1, 11))
    assert {bool(c.frames) for c in sent.collectives if not c.finished} == {True}
    assert {bool(c.frames) for c in sent.collectives if c.finished} == {False}
    assert len(msgspec.msgpack.encode(sent)) < len(msgspec.msgpack.encode(whole)) / 5
    assert reduced(sent) == sent


def framed(c: Collective) -> Collective:
    return msgspec.structs.replace(c, frames=(LINE,) * 20)


def test_a_short_recorder_stays_as_it_is() -> None:
    whole = a_recorder(*(entry(n) for n in range(1, STEPS // 2)), entry(STEPS // 2, finished=False))
    assert reduced(whole) == whole
