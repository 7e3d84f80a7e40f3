"""How `holdfast run` takes leave of a run that failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.analysis.job.run_paths import MARKER
from holdfast.cli import run_ending


def a_folder(folder: Path) -> Path:
    records = [
        {"kind": "launch", "world": 1, "attempt": 0},
        {"kind": "rank", "attempt": 0, "rank": 0, "pid": 7, "what": "exited", "code": 1},
        {"kind": "end", "exit_code": 1, "attempt": 0},
    ]
    (folder / "attempt-0/rank-0").mkdir(parents=True)
    (folder / MARKER).write_text("{}")
    (folder / "journal.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (folder / "attempt-0/rank-0/stderr.log").write_text(
        "OSError: [Errno 28] No space left on device\n"
    )
    return folder


def test_the_folder_is_explained(tmp_path: Path) -> None:
    answer, remark = run_ending.explain(str(a_folder(tmp_path / "r")))
    assert remark == ""
    assert answer
    assert (answer.slug, run_ending.record(answer).ranks) == ("disk-full", (0,))


def test_what_takes_too_long_or_fails_is_a_remark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(a_folder(tmp_path / "r"))
    with monkeypatch.context() as patch:
        patch.setattr(run_ending, "LARGEST", 10)
        assert run_ending.explain(folder) == (
            None, f"the logs are large; read them with `holdfast explain {folder}`",
        )  # fmt: skip
    monkeypatch.setattr(run_ending, "SECONDS", 0.0)
    answer, remark = run_ending.explain(folder)
    assert answer or remark.startswith("explaining it takes longer")
