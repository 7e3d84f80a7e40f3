"""Scripts that start their own ranks (`mp.spawn`): they start, and are watched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.jobs import ran
from tests.places import TARGETS
from tests.rank.ranks import free_port


@pytest.mark.long
def test_a_hang_among_ranks_that_the_script_spawned_is_named(tmp_path: Path) -> None:
    """At a port of the script's own, where the launcher serves no store: its rank 0 must."""
    words = ("--max-restarts", "0", "--patience", "4", "--nproc-per-node", "1")
    target = str(TARGETS / "spawn_own_ranks.py")
    done = ran(tmp_path, *words, target, str(free_port()), "sleep")
    assert done.said()[-1] == ("verdict", "rank-stuck", [1]), done.err
    verdict = done.records("verdict")[0]
    assert verdict["victims"] == [0]
    assert "run() at spawn_own_ranks.py" in verdict["reason"]
    assert "waits for it in all_reduce" in verdict["reason"]
    assert verdict["steps"] == 5
    # of the processes that it spawned: the one the launcher started is only their parent
    assert f"rank 1 (pid {done.pids()[0]})" not in verdict["reason"]
    assert {path.name for path in done.run.glob("attempt-0/evidence-*/rank-*.stack.json")} == {
        "rank-0.stack.json",
        "rank-1.stack.json",
    }
