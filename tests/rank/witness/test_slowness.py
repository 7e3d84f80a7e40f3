"""How much longer the steps of a straggler take."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.rank.witness import slowness


@given(step=st.floats(0, 1000))
def test_several_times_as_long_and_never_less_than_can_be_seen(step: float) -> None:
    whole = step + slowness.extra(step)
    assert whole >= slowness.TIMES * step * 0.999
    assert whole >= slowness.LEAST


def test_a_file_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    slowness.begin(3600.0, str(tmp_path / "go"))
    slowness.after_step()
    (tmp_path / "go").touch()
    slowness.after_step()
    assert len(slept) == 1
