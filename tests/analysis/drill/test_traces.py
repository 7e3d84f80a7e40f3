"""A curve of any length as a page can hold it."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.drill.outcome import TracePoint
from holdfast.analysis.drill.traces import thinned


def curve(losses: list[float | None]) -> list[TracePoint]:
    return [(float(number), number + 1, loss) for number, loss in enumerate(losses)]


@given(st.lists(st.none() | st.floats(), max_size=300), st.integers(4, 60))
def test_few_points_in_their_order_with_the_first_and_the_last(
    losses: list[float | None], most: int
) -> None:
    points = curve(losses)
    kept = thinned(points, most)
    assert len(kept) <= most
    steps = [step for _, step, _ in kept]
    assert steps == sorted(set(steps))
    assert {id(one) for one in kept} <= {id(one) for one in points}
    if points:
        assert (kept[0], kept[-1]) == (points[0], points[-1])
    if len(points) <= most:
        assert len(kept) == len(points)


@given(st.integers(1, 9_998), st.sampled_from([50.0, -50.0, math.nan]))
def test_a_spike_stays_to_be_seen(at: int, spike: float) -> None:
    losses: list[float | None] = [1.0] * 10_000
    losses[at] = spike
    assert at + 1 in [step for _, step, _ in thinned(curve(losses))]
