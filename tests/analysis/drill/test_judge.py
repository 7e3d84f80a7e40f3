"""Which promises were kept: a table of what can happen to a job."""

from __future__ import annotations

import pytest

from holdfast.analysis.drill.injection import Then
from tests.analysis.drill.jobs import Play


@pytest.mark.parametrize("then", [Then.RESTARTS, Then.ENDS, Then.GOES_ON])
def test_a_perfect_recovery_is_kept(then: Then) -> None:
    row = Play(then=then).row()
    assert (row.status, row.broken, row.unchecked) == ("kept", (), ())
    assert (row.data, row.loss, row.weights) == ("identical", "identical", "identical")
    assert row.repeated == (0 if then is Then.GOES_ON else 5)
    assert row.named == "rank-killed: rank 2"
    assert row.named_right
