from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.nodes.lease import LATE_LOOK, Hearing, Lease, Leases

LEASE = Lease(late=2.0, lost=5.0)
EVENTS = st.lists(
    st.tuples(st.sampled_from(["heard", *["look"] * 5]), st.integers(0, 12).map(lambda n: n / 8)),
    max_size=80,
)
"""what happened, and how many seconds after the event before it"""


def hearing(leases: Leases, now: float, node: str = "b") -> Hearing:
    return leases.look(now)[node].hearing


def look_until(leases: Leases, begin: float, end: float) -> Hearing:
    """On time, several times a second."""
    now, last = begin, Hearing.HEARD
    while now < end:
        now = min(now + 0.4, end)
        last = hearing(leases, now)
    return last


@pytest.mark.parametrize(
    ("silent", "expected"),
    [
        (0.0, Hearing.HEARD),
        (1.99, Hearing.HEARD),
        (2.0, Hearing.LATE),
        (4.99, Hearing.LATE),
        (5.0, Hearing.LOST),
        (1e9, Hearing.LOST),
    ],
)
def test_a_lease_by_silence(silent: float, expected: Hearing) -> None:
    assert LEASE.hearing(silent) is expected


@pytest.mark.parametrize(("late", "lost"), [(0, 1), (-1, 1), (2, 2), (3, 2)])
def test_a_lease_must_make_sense(late: float, lost: float) -> None:
    with pytest.raises(ValueError, match="must be 0 < late < lost, got"):
        Lease(late=late, lost=lost)


def test_a_silent_node_is_late_and_then_lost_while_the_others_are_heard() -> None:
    leases = Leases(LEASE, ["b", "c"], now=100.0)
    for tenth in range(1, 61):
        now = 100 + tenth / 10
        leases.heard("c", now=now)
        seen = leases.look(now)
        assert seen["c"].hearing is Hearing.HEARD
        assert seen["b"].hearing is LEASE.hearing(now - 100)
    assert seen["b"].reason == ("nothing from b for 6.0 s (late after 2 s, lost after 5 s)")


def test_a_late_loop_loses_no_node() -> None:
    leases = Leases(LEASE, ["b"], now=0.0)
    look_until(leases, 0.0, 4.0)
    assert hearing(leases, 60.0) is Hearing.HEARD  # suspended for 56 s
    assert look_until(leases, 60.0, 64.9) is Hearing.LATE
    assert look_until(leases, 64.9, 65.0) is Hearing.LOST


def test_a_lost_node_stays_lost_when_our_loop_is_late_and_comes_back_when_heard() -> None:
    leases = Leases(LEASE, ["b"], now=0.0)
    assert look_until(leases, 0.0, 5.0) is Hearing.LOST
    assert hearing(leases, 20.0) is Hearing.LOST
    leases.heard("b", now=20.1)
    assert hearing(leases, 20.2) is Hearing.HEARD


@given(EVENTS)
def test_no_node_is_lost_in_less_than_its_lease_of_listening(
    events: list[tuple[str, float]],
) -> None:
    """Whatever our loop does: silence counts from the last word or the last late look, and a lost
    node is lost until it is heard."""
    leases = Leases(LEASE, ["b"], now=0.0)
    now = listened_since = looked = 0.0
    lost = False
    for what, later in events:
        now += later
        if what == "heard":
            leases.heard("b", now=now)
            listened_since, lost = now, False
            continue
        if now - looked > LATE_LOOK and not lost:
            listened_since = now
        looked = now
        seen = leases.look(now)["b"]
        assert seen.silent == now - listened_since
        assert seen.hearing is LEASE.hearing(now - listened_since)
        assert seen.hearing is Hearing.LOST or not lost
        lost = seen.hearing is Hearing.LOST


@given(st.lists(st.integers(0, 19), min_size=1, max_size=60))
def test_a_node_heard_often_enough_is_never_late(gaps: list[int]) -> None:
    leases = Leases(LEASE, ["b"], now=0.0)
    tenths = 0
    for gap in gaps:
        for _ in range(gap):
            tenths += 1
            assert hearing(leases, tenths / 10) is Hearing.HEARD
        leases.heard("b", now=tenths / 10)
