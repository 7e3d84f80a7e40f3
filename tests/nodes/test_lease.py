from __future__ import annotations

import pytest

from holdfast.nodes.lease import Hearing, Lease

LEASE = Lease(late=2.0, lost=5.0)


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
