"""Which rank ended first: times are when it failed, not when the kernel was done with it."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Death, ExitCall, LastWords, RankView
from holdfast.run.watch import verdict
from tests.run.scenes import (
    NOW,
    RESET,
    a_beat,
    a_rank,
    a_scene,
    elsewhere,
    ended,
    lost_its_peer,
    waiting,
    words,
)


def call(code: int, at: float, *, by: str = "sys.exit") -> ExitCall:
    return ExitCall(at=at, by=by, code=code, where="train.py:88 in main")


def left(
    rank: int,
    code: int,
    *,
    at: float,
    said: LastWords | None = None,
    recorder: Any = None,
    **beat: Any,
) -> RankView:
    """The kernel reported its death at that moment."""
    known = a_beat(**{"step_at": at - 30, "leaving_at": at - 0.2, **beat})
    death = Death(code=code, at=at)
    return a_rank(rank, death=death, words=said, activity=None, beat=known, recorder=recorder)


def leaving(rank: int, since: float, **beat: Any) -> RankView:
    """Python shuts down in it, and the process is still there."""
    known = a_beat(step_at=since - 30, leaving_at=since, group_ready=False, **beat)
    return a_rank(rank, beat=known)


def named(*ranks: RankView) -> tuple[str, list[int]]:
    found = verdict.judge(a_scene(ranks))
    assert found is not None
    return found.slug, list(found.ranks)


def test_the_rank_that_raised_first_is_named_though_another_was_gone_first() -> None:
    """As with Hydra: each prints its exception and calls sys.exit(1)."""
    bad = words("ValueError", "bad batch", at=NOW - 3)
    handled = msgspec.structs.replace(bad, exit_code=1)
    ranks = [
        left(0, 1, at=NOW - 2, said=None, exit_call=call(1, NOW - 2.9)),
        left(1, 1, at=NOW - 1.9, said=None, exit_call=call(1, NOW - 2.8)),
        left(2, 1, at=NOW - 0.5, said=handled, exit_call=call(1, NOW - 3)),
    ]
    assert named(*ranks) == ("python-exception", [2])
    mute = msgspec.structs.replace(ranks[2], words=None)
    assert named(*ranks[:2], mute) == ("python-exception", [2])


def test_a_slow_end_is_dated_by_its_beginning() -> None:
    """sys.exit(1), the group destroyed in a `finally`, a second of teardown: the others complain
    long before the kernel reports the death."""
    culprit = left(2, 1, at=NOW, exit_call=call(1, NOW - 2), group_left_at=NOW - 1.9)
    assert named(lost_its_peer(0, at=NOW - 1.8), a_rank(1), culprit) == ("python-exception", [2])
    # `raise SystemExit(1)`: no call is seen, only that the group went before they complained
    silent = left(2, 1, at=NOW, group_left_at=NOW - 1.9)
    assert named(lost_its_peer(0, at=NOW - 1.8), a_rank(1), silent) == ("python-exception", [2])


def test_a_rank_that_leaves_well_but_slowly_is_seen_leaving() -> None:
    others = [lost_its_peer(0), lost_its_peer(1)]
    slow = left(2, 0, at=NOW, group_left_at=NOW - 1.2, group_ready=False, leaving_at=NOW - 1.1)
    assert named(*others, slow) == ("rank-exits-early", [2])
    assert named(*others, leaving(2, NOW - 1.1)) == ("rank-exits-early", [2])
    # on its way out with an error code: that is its own failure
    failing = leaving(2, NOW - 1.1, exit_call=call(3, NOW - 1.2))
    assert named(*others, failing) == ("python-exception", [2])


def test_a_rank_that_fails_after_the_others_were_done_fails_by_itself() -> None:
    done = [left(rank, 0, at=NOW - 3) for rank in (1, 2, 3)]
    late = left(0, 3, at=NOW - 0.5, exit_call=call(3, NOW - 1), recorder=elsewhere())
    assert named(late, *done) == ("python-exception", [0])
    unknown = left(0, 3, at=NOW - 0.5)  # `raise SystemExit(3)`, and nothing kept
    assert named(unknown, *done) == ("python-exception", [0])


def test_a_rank_that_exits_out_of_a_collective_was_left_alone_in_it() -> None:
    done = [left(rank, 0, at=NOW - 3) for rank in (1, 2, 3)]
    late = left(0, 3, at=NOW - 0.5, exit_call=call(3, NOW - 1), recorder=waiting())
    assert named(late, *done) == ("rank-exits-early", [1, 2, 3])


def test_a_call_that_the_script_caught_is_none() -> None:
    caught = left(0, 0, at=NOW - 1, exit_call=call(1, NOW - 20))
    assert exits.exit_call(caught) is None
    assert not exits.endings(a_scene([caught, a_rank(1)]))
    stepped = left(0, 1, at=NOW - 1, exit_call=call(1, NOW - 20), step_at=NOW - 10)
    assert exits.exit_call(stepped) is None


TIMES = st.floats(NOW - 20, NOW)


@given(
    st.lists(st.tuples(TIMES, st.floats(0, 10), st.integers(0, 2), st.booleans()), min_size=2),
)
def test_taking_a_process_apart_changes_no_blame(
    seen: list[tuple[float, float, int, bool]],
) -> None:
    """However long it takes until the kernel reports a death, the same rank is the cause."""
    quick, slow = [], []
    for rank, (at, teardown, code, speaks) in enumerate(seen):
        said = words("RuntimeError", RESET, at=at) if speaks and code else None
        beat = {"exit_call": None if said else call(code, at), "leaving_at": at}
        quick.append(left(rank, code, at=at, said=said, **beat))
        slow.append(left(rank, code, at=at + teardown, said=said, **beat))
    first = [e.rank for e in exits.cause(a_scene(quick))]
    assert [e.rank for e in exits.cause(a_scene(slow))] == first
    assert exits.endings(a_scene([ended(0, 0)])) == ()
