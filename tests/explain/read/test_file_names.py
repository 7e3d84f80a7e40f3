"""What a path says of its writer, and numbers that are not ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.explain.read import file_names
from holdfast.explain.read.file_names import FileNameHints

PATHS = [
    ("logs/rank0.log", FileNameHints(rank=0)),
    ("rank_3.err", FileNameHints(rank=3)),
    ("out/global_rank-12.txt", FileNameHints(rank=12)),
    ("rank-3/stderr.log", FileNameHints(rank=3)),
    ("bundle.tar.gz: a/rank7.log", FileNameHints(rank=7)),
    ("job_local_rank_2.log", FileNameHints(local_rank=2)),
    ("run_x/attempt_1/2/stderr.log", FileNameHints(local_rank=2, attempt=1)),
    ("run_x/attempt_0/2/error.json", FileNameHints(local_rank=2, attempt=0)),
    ("runs/a/attempt-1/rank-2/stderr.log", FileNameHints(rank=2, attempt=1)),
    ("runs/a/attempt-0/evidence-1/rank-2.stack.json", FileNameHints(rank=2, attempt=0)),
    ("nccl.node7.4711", FileNameHints(host="node7", pid=4711)),
    ("nccl_debug.node7.4711.log", FileNameHints(host="node7", pid=4711)),
    ("node-2.log", FileNameHints(host="node-2")),
    ("py_spy_pid_77.txt", FileNameHints(pid=77)),
    ("slurm-123_4.out", FileNameHints()),
    ("slurm-123.out", FileNameHints()),
    ("frank3.log", FileNameHints()),
    ("epoch_3.log", FileNameHints()),
    ("", FileNameHints()),
]


@pytest.mark.parametrize(("path", "told"), PATHS)
def test_what_a_path_says_of_its_writer(path: str, told: FileNameHints) -> None:
    assert file_names.hints(path) == told


@pytest.mark.parametrize("path", ["fr_3", "/tmp/nccl_trace_rank_3", "dump-3.pickle", "trace3.json"])
def test_the_number_of_a_dump_is_its_rank(path: str) -> None:
    assert file_names.hints(path, dump=True).rank == 3


@given(st.text(max_size=40))
def test_any_name_is_taken(path: str) -> None:
    found = file_names.hints(path)
    assert found.rank is None or any(letter.isdigit() for letter in path)
    assert found.host == "" or found.host in path
