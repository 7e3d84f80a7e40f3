"""A launcher that is stopped in a real job; all rows are in tools/fence_table.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drill.lab.fixture import lab_or_skip
from tests.run.nodes.fence_rows import FenceRow, play


@pytest.mark.lab
@pytest.mark.xdist_group("nodes-lab-jobs")
def test_ranks_of_a_stopped_launcher_are_gone_before_others_start(tmp_path: Path) -> None:
    with lab_or_skip():
        pass
    seen = play(FenceRow(2, "member", "launcher stopped", lease=3.0), tmp_path)
    assert seen.rounds == 2, seen.screen
    assert seen.gap is not None
    assert seen.gap >= 0, seen.screen
