"""Versions as numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.versions import release


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2.13.0+cpu", (2, 13, 0)),
        ("2.20.5+cuda12.4", (2, 20, 5)),
        ("2.2.0a0+git", (2, 2, 0)),
        ("v2.24.3-1", (2, 24, 3)),
        (" 535.104.05\n", (535, 104, 5)),
        ("", ()),
        ("unknown", ()),
    ],
)
def test_release(text: str, numbers: tuple[int, ...]) -> None:
    assert release(text) == numbers


@given(st.text(max_size=30))
def test_release_never_raises(text: str) -> None:
    assert all(part >= 0 for part in release(text))
