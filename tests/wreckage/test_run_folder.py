"""The folder of a run: which attempt is explained, who was who, which files are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.paths import MARKER
from holdfast.wreckage import run_folder


def journal(*records: dict[str, Any]) -> str:
    return "".join(json.dumps({"t": 100.0 + n, **r}) + "\n" for n, r in enumerate(records))


def made(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / MARKER).write_text("{}")
    (folder / "journal.jsonl").write_text(text)
    return folder


LAUNCH = {"kind": "launch", "world": 2, "attempt": 0}
STARTED = [
    {"kind": "rank", "attempt": 0, "rank": rank, "pid": 70 + rank, "what": "started"}
    for rank in range(2)
]
DIED = {"kind": "rank", "attempt": 0, "rank": 1, "pid": 71, "what": "exited", "code": -9}
VERDICT = {
    "kind": "verdict", "slug": "rank-killed", "code": "HOLD701", "ranks": [1], "victims": [0],
    "hosts": ["node7"], "reason": "rank 1 was killed", "fix": "look", "attempt": 0,
}  # fmt: skip
WELL = {"kind": "end", "exit_code": 0, "attempt": 1}


def test_the_attempt_that_failed_is_explained(tmp_path: Path) -> None:
    later = [{"kind": "rank", "attempt": 1, "rank": 0, "pid": 90, "what": "started"}, WELL]
    text = journal(LAUNCH, *STARTED, DIED, VERDICT, *later)
    found = run_folder.read(str(made(tmp_path / "r", text)))
    assert (found.attempt, found.world_size, found.host) == (0, 2, "node7")
    assert found.pids == {0: 70, 1: 71}
    (end,) = found.exits
    assert (end.rank, end.pid, end.code, end.teller, end.line.number) == (1, 71, -9, "holdfast", 4)
    (told,) = found.told
    assert (told.slug, told.ranks, told.victims, told.verdict) == ("rank-killed", (1,), (0,), True)


def test_a_run_that_ended_well_has_nothing_to_explain(tmp_path: Path) -> None:
    text = journal(LAUNCH, *STARTED, {"kind": "end", "exit_code": 0, "attempt": 0})
    found = run_folder.read(str(made(tmp_path / "r", text)))
    assert found.finished
    assert not found.told


def test_the_logs_of_all_ranks_and_the_last_evidence(tmp_path: Path) -> None:
    folder = made(tmp_path / "r", journal(LAUNCH))
    for name in ("rank-0/stderr.log", "evidence-2/rank-0.stack.json", "evidence-2/kernel.log",
                 "evidence-10/rank-0.recorder.json", "evidence-10/missing.txt"):  # fmt: skip
        file = folder / "attempt-0" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    files = [(rank, Path(path).name) for rank, path in run_folder.read(str(folder)).files()]
    assert files == [(0, "stdout.log"), (0, "stderr.log"), (0, "rank-0.recorder.json")]


def test_any_other_folder_is_not_ours(tmp_path: Path) -> None:
    assert not run_folder.looks_like(str(tmp_path))
    assert run_folder.looks_like(str(made(tmp_path / "r", "")))


@given(st.binary(max_size=400))
def test_a_damaged_journal_never_stops_us(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes
) -> None:
    folder = made(tmp_path_factory.mktemp("run"), "")
    whole = journal(LAUNCH, VERDICT).encode()
    (folder / "journal.jsonl").write_bytes(junk + b"\n" + whole + junk)
    assert run_folder.read(str(folder)).told[0].slug == "rank-killed"
