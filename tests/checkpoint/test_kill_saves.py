"""A few real SIGKILLs; `make proof` does a thousand."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tools.kill_saves import VICTIMS, check, kill_many


@pytest.mark.long
def test_no_kill_loses_what_was_reported(tmp_path: Path) -> None:
    for seed in range(4, 12):  # on a busy machine no save may be done before the kill
        tally = kill_many(15, str(tmp_path / "ckpts"), random.Random(seed))
        assert tally.lost == []
        assert set(tally.kills) == set(VICTIMS)
        if tally.committed:
            break
    assert tally.committed > 0, "else nothing could have been lost"
    check(str(tmp_path / "ckpts"), 10**6, tally)
    assert tally.lost, "the check itself can fail"
