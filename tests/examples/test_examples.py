"""Each example, killed under `holdfast run`, ends with the weights of an undisturbed run."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.cli.jobs import Job, ran

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
KILLED = str(Path(__file__).with_name("killed.py"))


def broken_and_whole(tmp_path: Path, example: str, killed_at: str) -> Job:
    words = (KILLED, str(EXAMPLES / example), str(tmp_path / "broken"), killed_at)
    job = ran(tmp_path / "job", "--nproc-per-node", "2", *words)
    assert job.process.returncode == 0, job.err
    assert [record["ranks"] for record in job.records("verdict")] == [[1]], job.err
    return job


def resumed_at(job: Job) -> list[int]:
    return [
        int(step) for step in re.findall(r"holdfast> rank 0 resumed at step (\d+) from", job.err)
    ]


def lines(job: Job, beginning: str) -> list[str]:
    return [line for line in job.out.decode().splitlines() if line.startswith(beginning)]


# Epochs are of 8 to 30 steps, so that each death and each resume is in the middle of one. Which
# checkpoint was the last to be safe is the disk's affair.
@pytest.mark.long
@pytest.mark.parametrize("example", ["hf_trainer.py", "lightning_trainer.py", "accelerate_loop.py"])
def test_a_trainer_continues_where_it_was(tmp_path: Path, example: str) -> None:
    if example == "hf_trainer.py" and find_spec("transformers") is None:
        pytest.skip("needs transformers, which needs Python 3.11")
    job = broken_and_whole(tmp_path, example, "1:13")
    (step,) = resumed_at(job)
    assert 5 <= step < 13
    assert "data-position-lost" not in job.err
    broken, undisturbed = lines(job, "done at step 24: weights ")
    assert broken == undisturbed


@pytest.mark.long
@pytest.mark.parametrize("example", ["train.py", "fsdp2.py"])
def test_a_plain_script_continues_where_it_was(tmp_path: Path, example: str) -> None:
    job = broken_and_whole(tmp_path, example, "1:25")
    (step,) = resumed_at(job)
    assert 10 <= step < 25
    broken, undisturbed = lines(job, "done at step 60: weights ")
    assert broken == undisturbed
    losses = lines(job, "step ")
    assert len(losses) >= 12
    assert len(set(losses)) == 6, "what was done again had other losses"
