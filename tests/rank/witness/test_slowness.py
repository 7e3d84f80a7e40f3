"""How much longer the steps of a straggler take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.rank.witness import slowness


@given(step=st.floats(0, 1000))
def test_several_times_as_long_and_never_less_than_can_be_seen(step: float) -> None:
    whole = step + slowness.extra(step)
    assert whole >= slowness.TIMES * step * 0.999
    assert whole >= slowness.LEAST
