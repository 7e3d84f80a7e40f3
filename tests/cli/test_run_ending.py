"""How `holdfast run` takes leave of a run that failed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.analysis.job.run_paths import MARKER
from holdfast.cli import run_ending
from holdfast.findings import Culprit, Diagnosis, Evidence

TOLD = ["ended with exit code 1: 20 steps, 0 restarts, 16 s", "root cause: python-exception on …"]
CAUSE = {"kind": "verdict", "slug": "python-exception", "ranks": [2]}
HINT = "`holdfast explain runs/ID` shows the evidence"


def found(slug: str, rank: int | None = 2, confidence: float = 0.92) -> Diagnosis:
    return Diagnosis(
        code="HOLD308",
        slug=slug,
        confidence=confidence,
        culprit=None if rank is None else Culprit(rank=rank),
        reason="the GPU was full",
        evidence=(Evidence(quote="CUDA out of memory", source="stderr.log", line=9, rank=2),),
        fix="a smaller batch",
    )


@pytest.mark.parametrize(
    ("cause", "answer", "lines"),
    [
        (CAUSE, None, TOLD),
        (CAUSE, found("gpu-oom", confidence=0.4), TOLD),
        (CAUSE, found("python-exception"), [TOLD[0], HINT, TOLD[1]]),
        ({**CAUSE, "ranks": []}, found("python-exception", None), [TOLD[0], HINT, TOLD[1]]),
        (
            CAUSE,
            found("gpu-oom"),
            [
                TOLD[0],
                "said at the time: python-exception on …",
                "  --> stderr.log:9: rank 2: CUDA out of memory",
                "help: a smaller batch",
                HINT,
                "root cause: gpu-oom on rank 2: the GPU was full",
            ],
        ),
    ],
)
def test_the_root_cause_comes_last_and_only_once(
    cause: dict[str, Any], answer: Diagnosis | None, lines: list[str]
) -> None:
    assert run_ending.lines(TOLD, cause, answer, "runs/ID") == lines


def test_without_a_verdict_the_diagnosis_is_the_root_cause() -> None:
    lines = run_ending.lines(TOLD[:1], None, found("gpu-oom", None), "runs/ID")
    assert lines[-1] == "root cause: gpu-oom: the GPU was full"


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
    assert (answer.slug, run_ending.record(answer)["ranks"]) == ("disk-full", [0])


def test_what_takes_too_long_or_fails_is_a_remark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(a_folder(tmp_path / "r"))
    with monkeypatch.context() as patch:
        patch.setattr(run_ending, "LARGEST", 10)
        assert run_ending.explain(folder) == (
            None, f"the logs are large; `holdfast explain {folder}` reads them",
        )  # fmt: skip
    monkeypatch.setattr(run_ending, "SECONDS", 0.0)
    answer, remark = run_ending.explain(folder)
    assert answer or remark.startswith("it takes longer")
