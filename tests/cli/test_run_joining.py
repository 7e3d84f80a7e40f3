"""`holdfast run` and ranks that can not find together."""

from __future__ import annotations

from pathlib import Path

from tests.cli.jobs import ran, script

BOTH_ARE_ZERO = (
    "import torch.distributed as dist\ndist.init_process_group('gloo', rank=0, world_size=2)\n"
)


def test_a_rank_that_takes_the_number_of_another_is_named(tmp_path: Path) -> None:
    train = script(tmp_path, BOTH_ARE_ZERO)
    done = ran(tmp_path, "--nproc-per-node", "2", "--max-restarts", "0", train)
    assert done.said() == [("verdict", "rank-assignment", [1])], done.err
    verdict = done.records("verdict")[0]
    assert verdict["victims"] == [0]
    assert "claims to be 0 of 2 and was given 1 of 2" in verdict["reason"]
    assert done.process.returncode == 124
    assert done.actions() == ["stop"]
