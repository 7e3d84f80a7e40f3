from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.check.smoke.rank import version_of
from holdfast.check.smoke.stages import (
    LADDER,
    MAX_WORLD,
    PERIOD,
    REPEATS,
    Record,
    contribution,
    deadline,
    decode,
    encode,
    total,
)

records = st.builds(
    Record,
    rank=st.integers(),
    kind=st.text(),
    stage=st.text(),
    pid=st.integers(),
    device=st.text(),
    master=st.text(),
    nccl=st.text(),
    size=st.integers(),
    seconds=st.floats(allow_nan=False),
    correct=st.booleans(),
    text=st.text(),
    code=st.integers(),
)


@given(records)
def test_a_record_survives_the_pipe_as_one_line(record: Record) -> None:
    line = encode(record)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == record


@given(st.binary())
def test_any_bytes_are_a_record_or_nothing(line: bytes) -> None:
    assert decode(line) is None


@pytest.mark.parametrize(
    "line",
    [
        b'{"rank": 0}',
        b'{"rank": "0", "kind": "done", "stage": "start"}',
        b'{"rank": true, "kind": "done", "stage": "start"}',
        b'{"rank": 0, "kind": "done", "stage": "start", "surprise": 1}',
        b"[1, 2]",
        b"[" * 100_000,
    ],
)
def test_a_line_of_the_wrong_shape_is_nothing(line: bytes) -> None:
    assert decode(line) is None


@given(
    st.integers(2, MAX_WORLD),
    st.integers(0, LADDER[-1] // 4),
    st.integers(0, REPEATS),
    st.data(),
)
def test_sums_are_exact_and_a_skipped_or_repeated_rank_shows(
    world: int, position: int, round_number: int, data: st.DataObject
) -> None:
    shares = [contribution(rank, position, round_number) for rank in range(world)]
    expected = total(world, position, round_number)
    assert sum(shares) == expected
    assert expected < 2**24, "float32 holds it exactly"
    left_out = data.draw(st.integers(0, world - 1))
    twice = data.draw(st.integers(0, world - 1).filter(lambda rank: rank != left_out))
    assert expected - shares[left_out] != expected
    assert expected + shares[twice] != expected
    assert expected - shares[left_out] + shares[twice] != expected


@given(st.integers(1, MAX_WORLD), st.integers(0, 10**7), st.integers(1, PERIOD - 1))
def test_a_misplaced_chunk_and_an_old_result_show(world: int, position: int, shift: int) -> None:
    assert total(world, position, 0) != total(world, position + shift, 0)
    assert total(world, position, 0) != total(world, position, 1)


def test_slow_imports_and_gpus_get_all_the_time_tcp_does_not() -> None:
    assert [deadline(s, 60.0) for s in ("start", "store", "gloo", "nccl")] == [60, 30, 30, 60]
    assert deadline("store", 5.0) == 5.0


LOAD_AND_ASK = """
import ctypes, sys
from holdfast.check.smoke.rank import loaded_nccl_version
print(repr(loaded_nccl_version()))
ctypes.CDLL(sys.argv[1])
print(loaded_nccl_version())
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc to make a library")
def test_the_version_of_nccl_is_that_of_the_library_which_is_loaded(tmp_path: Path) -> None:
    """torch tells the one it was built with; LD_PRELOAD may have brought another."""
    code = "int ncclGetVersion(int *number) { *number = 23203; return 0; }"
    made = tmp_path / "other-name.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-xc", "-", "-o", str(made)],
        input=code.encode(),
        check=True,
    )
    said = subprocess.run(
        [sys.executable, "-c", LOAD_AND_ASK, str(made)], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["''", "2.32.3"]


@pytest.mark.parametrize(
    ("number", "version"),
    [(22809, "2.28.9"), (23203, "2.32.3"), (2708, "2.7.8"), (21005, "2.10.5")],
)
def test_versions_as_nccl_h_composes_them(number: int, version: str) -> None:
    assert version_of(number) == version
