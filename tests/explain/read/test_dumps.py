"""Dumps of unknown origin, read by processes with limited memory and time."""

from __future__ import annotations

import json
import pickle
import struct
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Recorder
from holdfast.explain.read import dumps
from tests.analysis.collectives.dumped import document, up_to

GOOD = pickle.dumps(document(*up_to(3, waits=True), groups={"0": (0, 1)}), protocol=2)

NESTED = (
    b"\x80\x02)q\x00" + b"0h\x00h\x00\x86q\x00" * 60 + b"0}(h\x00Nu."
)  # a key of tuples in tuples, whose hash takes 2**60 steps


@pytest.mark.parametrize(
    ("peek", "name", "is_one"),
    [
        (GOOD, "fr_0", True),
        (json.dumps(document(*up_to(3))).encode(), "x.json", True),
        (b'  [{"pg_config": {}}]', "rank-0.recorder.json", True),
        (b"", "/tmp/nccl_trace_rank_3", True),
        (b"\x80\x02}(", "comm_lib_trace_rank_12", True),
        (b"", "rank_3.log", False),
        (b"\x80\x02}q\x00X\x05\x00\x00\x00model", "checkpoint.pt", False),
        (b'{"message": "x"}', "error.json", False),
        (b"profiling_name in a log\n", "rank_3.log", False),
        (b"\x89PNG", "nccl_trace_rank_3", False),
    ],
)
def test_a_dump_is_known_by_what_it_holds(peek: bytes, name: str, is_one: bool) -> None:
    assert dumps.looks_like(peek, name) is is_one


def test_one_dump() -> None:
    seen = dumps.read("fr_0", GOOD)
    assert isinstance(seen, Recorder)
    assert (seen.entered, seen.finished, seen.members) == ({"0": 3}, {"0": 2}, {"0": (0, 1)})
    assert seen.collectives[-1].frames[-1].file == "/home/user/train.py"


def test_many_dumps_keep_their_order_and_one_bad_does_not_spoil_the_others() -> None:
    def bytes_of(rank: int) -> bytes:
        if rank == 5:
            raise PermissionError(13, "Permission denied")
        return GOOD if rank != 7 else b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR."

    def source(rank: int) -> Callable[[], bytes]:
        return lambda: bytes_of(rank)

    read = dumps.read_all([(f"fr_{rank}", source(rank)) for rank in range(24)])
    assert [rank for rank, one in enumerate(read) if isinstance(one, Unread)] == [5, 7]
    assert read[5] == Unread(why="fr_5 could not be read: Permission denied")
    assert isinstance(read[7], Unread)
    assert "os.system, which no recorder writes" in read[7].why
    assert dumps.read_all([]) == []


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "empty: its process ended before writing it"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "more than 2 GiB of memory"),
        (b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".", "more than 2 GiB of memory"),
        (b"\x80\x02X\xff\xff\xff\x7fa.", "more than 2 GiB of memory"),
        (NESTED, "took more than 3 s"),
        (GOOD[:-9], "not a flight recorder's dump"),
        (b'{"entries": [{"process_group": ["\x1b[31m0"]}]}', "not a flight recorder's dump"),
    ],
    ids=["empty", "memo", "prealloc", "length", "hash", "cut", "escape"],
)
def test_a_small_file_cannot_take_much(data: bytes, why: str) -> None:
    began = time.process_time()
    read = dumps.read("fr_0", data)
    assert isinstance(read, Unread)
    assert why in read.why
    assert read.why.isprintable()
    assert time.process_time() - began < 3.0


@settings(max_examples=20)
@given(st.lists(st.binary().map(b"\x80\x02".__add__), min_size=1, max_size=20))
def test_any_pickles_are_read_or_refused(found: list[bytes]) -> None:
    read = dumps.read_all([("x", partial(bytes, data)) for data in found])
    assert all(isinstance(one, Unread | Recorder) for one in read)
    assert len(read) == len(found)


def test_too_large_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dumps, "LARGEST", 1 << 20)
    assert dumps.read("fr_0", bytes(2 << 20)) == Unread(
        why="larger than 1 MiB, which no flight recorder writes"
    )


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    command = f"touch {mark}".encode()
    evil = b"\x80\x02cos\nsystem\n(X" + struct.pack("<I", len(command)) + command + b"tR."
    assert isinstance(dumps.read("fr_0", evil), Unread)
    assert not mark.exists()
