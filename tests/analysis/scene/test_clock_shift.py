"""Every time of a rank is changed to the coordinator's clocks, also those added tomorrow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.clock_shift import ClockShift, moved
from holdfast.analysis.scene.scene import RankView, Recorder
from tests.run.scenes import NOW, a_beat, a_rank, a_recorder, ended, entry, words

SHIFT = ClockShift(monotonic=5.0, wall=-70.0)

TIMES = {
    "RankView.alive_at": SHIFT.monotonic,
    "RankView.state_since": SHIFT.monotonic,
    "Beat.step_at": SHIFT.monotonic,
    "Beat.beat_at": SHIFT.monotonic,
    "Beat.limit_until": SHIFT.monotonic,
    "Beat.group_left_at": SHIFT.monotonic,
    "Beat.leaving_at": SHIFT.monotonic,
    "Claim.at": SHIFT.monotonic,
    "ExitCall.at": SHIFT.monotonic,
    "Death.at": SHIFT.monotonic,
    "LastWords.at": SHIFT.monotonic,
    "CpuLook.at": SHIFT.monotonic,
    "Claim.wall": SHIFT.wall,
    "Collective.created": SHIFT.wall,
    "Collective.ended": SHIFT.wall,
}
DURATIONS = {
    "Beat.usual_step",
    "Beat.group_timeout",
    "Claim.timeout",
    "Collective.timeout",
    "Activity.cpu",
    "Activity.queued",
    "CpuLook.ran",
    "CpuLook.queued",
}


def filled(kind: inspect.Type, count: Iterator[int]) -> Any:
    """A value of that type in which everything there can be is there, and every number differs."""
    if isinstance(kind, inspect.StructType):
        return kind.cls(**{f.name: filled(f.type, count) for f in kind.fields})
    if isinstance(kind, inspect.UnionType):
        structs = [t for t in kind.types if isinstance(t, inspect.StructType)]
        known = [t for t in structs if t.cls is not Unread]
        assert len(known) <= 1, "this test builds one of them only"
        others = [t for t in kind.types if not isinstance(t, inspect.NoneType)]
        return filled((known or others)[0], count)
    if isinstance(kind, inspect.VarTupleType):
        return (filled(kind.item_type, count), filled(kind.item_type, count))
    if isinstance(kind, inspect.DictType):
        return {filled(kind.key_type, count): filled(kind.value_type, count)}
    plain = {inspect.FloatType: float, inspect.IntType: int, inspect.StrType: str}
    if isinstance(kind, inspect.BoolType):
        return True
    return plain[type(kind)](1000 + next(count))


def floats(value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, msgspec.Struct):
        for info in msgspec.structs.fields(value):
            held = getattr(value, info.name)
            if isinstance(held, float):
                yield f"{type(value).__name__}.{info.name}", held
            yield from floats(held)
    elif isinstance(value, tuple):
        for one in value:
            yield from floats(one)


def test_every_number_of_seconds_is_known_to_be_a_time_or_a_duration() -> None:
    whole = filled(inspect.type_info(RankView), itertools.count())
    before, after = list(floats(whole)), list(floats(moved(whole, SHIFT)))
    assert {name for name, _ in before} == {*TIMES, *DURATIONS}, (
        "say in analysis/scene/clock_shift.py whether the new field is a time of one of the clocks"
    )
    for (name, was), (same, is_now) in zip(before, after, strict=True):
        assert name == same
        assert is_now - was == TIMES.get(name, 0.0), name


def test_what_is_not_a_time_stays() -> None:
    whole = filled(inspect.type_info(RankView), itertools.count())
    there = moved(whole, SHIFT)
    assert moved(there, ClockShift(monotonic=-SHIFT.monotonic, wall=-SHIFT.wall)) == whole


def test_what_has_not_happened_has_not_happened_by_other_clocks_either() -> None:
    view = a_rank(
        0, beat=a_beat(step_at=0.0, leaving_at=0.0), recorder=Unread("its process is gone")
    )
    changed = moved(view, SHIFT)
    assert changed.beat is not None
    assert changed.beat.step_at == changed.beat.leaving_at == changed.beat.limit_until == 0.0
    assert changed.recorder == view.recorder
    assert moved(a_rank(0, beat=None), SHIFT).beat is None


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_the_order_and_the_distances_of_a_machines_own_times_stay(mono: float, wall: float) -> None:
    shift = ClockShift(monotonic=mono, wall=wall)
    dead = moved(ended(1, -9, at=NOW, said=words("ValueError", at=NOW - 1.0)), shift)
    assert dead.death is not None
    assert dead.words is not None
    assert abs(dead.death.at - dead.words.at - 1.0) < 1e-6
    busy = moved(a_rank(0, recorder=a_recorder(entry(1), entry(2))), shift)
    assert isinstance(busy.recorder, Recorder)
    first, second = busy.recorder.collectives
    assert abs(second.created - first.created - 0.05) < 1e-5
