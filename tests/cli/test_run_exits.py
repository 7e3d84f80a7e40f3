"""How ranks leave, for real: what they said on the way out decides which is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.jobs import DDP, ran


@pytest.mark.parametrize(
    ("fault", "slug", "code", "saying"),
    [
        # Hydra's way: the exception is printed, then sys.exit
        pytest.param(
            *("report", "python-exception", 1, "ValueError: the batch is empty at ddp.py"),
            marks=pytest.mark.long,
        ),
        # exit code 0, and a process that takes two seconds to go
        ("leave", "rank-exits-early", None, "sys.exit at ddp.py"),
    ],
)
def test_the_rank_that_left_is_named_and_where_it_did(
    tmp_path: Path, fault: str, slug: str, code: int | None, saying: str
) -> None:
    words = ("--max-restarts", "0", "--nproc-per-node", "2", str(DDP), "22", fault, "1")
    done = ran(tmp_path, *words)
    assert done.said() == [("verdict", slug, [1])], done.err
    assert saying in done.records("verdict")[0]["reason"]
    assert done.records("verdict")[0]["victims"] == [0]
    assert done.process.returncode == code if code else done.process.returncode != 0
