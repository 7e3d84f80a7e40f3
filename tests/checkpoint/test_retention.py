"""Which checkpoints may go: never the newest, never the last few that are whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint.retention import removable


def names(*steps: int) -> list[str]:
    return [f"step-{step:09d}" for step in steps]


@pytest.mark.parametrize(
    ("there", "newest", "keep", "every", "broken", "gone"),
    [
        ((10, 20, 30, 40), 40, 2, None, (), (10, 20)),
        ((10, 20, 30, 40), 40, 9, None, (), ()),
        ((10, 20, 30, 40), 40, 1, None, (), (10, 20, 30)),
        ((10, 20, 30, 40), 40, 0, None, (), (10, 20, 30)),
        ((10, 20, 30, 40), 40, 2, None, (30,), (10,)),  # a broken one does not count, nor go
        ((10, 20, 30, 90), 30, 2, None, (), (10,)),  # newer ones are not ours to remove
        ((100, 150, 200, 250, 300, 350), 350, 1, 100, (), (150, 250)),
        ((97, 180, 205, 290, 310, 350), 350, 1, 100, (), (290,)),
    ],
)
def test_which_may_go(
    there: tuple[int, ...],
    newest: int,
    keep: int,
    every: int | None,
    broken: tuple[int, ...],
    gone: tuple[int, ...],
) -> None:
    found = removable(
        [*names(*there), "damaged", ".tmp-step-000000005-ab", "notes.txt"],
        names(newest)[0],
        keep,
        every,
        lambda name: name not in names(*broken),
    )
    assert found == names(*gone)


@given(
    steps=st.sets(st.integers(0, 400), min_size=1),
    keep=st.integers(1, 5),
    every=st.none() | st.integers(1, 100),
    broken=st.sets(st.integers(0, 400)),
)
def test_what_stays(steps: set[int], keep: int, every: int | None, broken: set[int]) -> None:
    newest = max(steps)
    broken -= {newest}
    found = removable(
        names(*steps), names(newest)[0], keep, every, lambda name: int(name[5:]) not in broken
    )
    left = steps - {int(name[5:]) for name in found}
    assert newest in left
    assert len(left - broken) >= min(keep, len(steps - broken))
    assert found == sorted(found)
    if every:
        assert {step // every for step in left} == {step // every for step in steps}
