"""The flight recorder that a failed rank leaves: as a living one's answer, from both backends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.analysis.collectives import recorder
from holdfast.rank import last_words

C10D = "torch._C._distributed_c10d"


def entry(backend: str, op: str, sequence: int) -> dict[str, Any]:
    return {
        "process_group": ["0", "default_pg"],
        "collective_seq_id": sequence,
        "profiling_name": f"{backend}:{op}",
        "retired": True,
        "is_p2p": False,
        "time_created_ns": sequence,
    }


def document(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"entries": list(entries)}).encode()


def fails() -> bytes:
    raise RuntimeError("CUDA error: device-side assert triggered")


NCCL = document(entry("nccl", "all_reduce", 7))
NCCL2 = document(entry("nccl2", "all_reduce", 9))
GLOO = document(entry("gloo", "barrier", 2))


def of_backend(*, backend: str = "gloo") -> bytes:
    return {"gloo": GLOO, "nccl2": NCCL2}[backend]


@pytest.mark.parametrize(
    ("dumps", "entered"),
    [
        # a build without CUDA has one recorder, and no name needs a backend
        ({"_dump_fr_trace_json": lambda: GLOO}, {"0": 2}),
        # with "cpu:gloo,cuda:nccl" both backends have a group '0'
        (
            {"_dump_fr_trace_json": lambda: GLOO, "_dump_nccl_trace_json": NCCL.decode},
            {"0": 7, "0 (gloo)": 2},
        ),
        # the other one has the same name, whatever becomes of NCCL's
        ({"_dump_fr_trace_json": lambda: GLOO, "_dump_nccl_trace_json": fails}, {"0 (gloo)": 2}),
        ({"_dump_nccl_trace_json": lambda: NCCL}, {"0": 7}),
        # since torch 2.15 `nccl` is another backend, which has its own recorder
        (
            {
                "_dump_fr_trace_json": of_backend,
                "_dump_nccl_trace_json": lambda: b"{}",
            },
            {"0": 9, "0 (gloo)": 2},
        ),
    ],
    ids=["gloo", "both", "nccl-fails", "nccl", "nccl2"],
)
def test_groups_have_the_names_that_a_living_rank_gives_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dumps: dict[str, Any], entered: dict[str, int]
) -> None:
    monkeypatch.setitem(sys.modules, C10D, SimpleNamespace(**dumps))
    last_words.keep_recorder(str(tmp_path / "kept"))
    assert recorder.parse((tmp_path / "kept").read_bytes()).entered == entered


def test_without_torch_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, C10D, SimpleNamespace())
    last_words.keep_recorder(str(tmp_path / "kept"))
    assert list(tmp_path.iterdir()) == []


LEAK = """
import os, resource, sys
from holdfast.rank.last_words import LastWordsWriter
LastWordsWriter(sys.argv[1])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
leaked = []
while True:
    leaked.append(open("/dev/null"))
"""


def test_a_rank_that_may_open_no_further_file_still_says_so(tmp_path: Path) -> None:
    words = tmp_path / "words.json"
    done = subprocess.run(
        [sys.executable, "-c", LEAK, str(words)], capture_output=True, text=True, check=False
    )
    assert "Too many open files" in done.stderr
    assert json.loads(words.read_text())["text"] == "[Errno 24] Too many open files: '/dev/null'"


def test_a_file_of_the_script_is_not_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    writer = last_words.LastWordsWriter(str(tmp_path / "words.json"))
    spare = writer._spare
    with open(tmp_path / "theirs", "w") as theirs:
        os.dup2(theirs.fileno(), spare)
    writer.note(ValueError, ValueError("x"), None)
    assert os.write(spare, b"still open") == 10
    os.close(spare)
