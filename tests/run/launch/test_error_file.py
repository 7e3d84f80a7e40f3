"""The file that TorchX, SageMaker and Ray read after a failure, by torch's own reader."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from holdfast.analysis.scene.scene import RankView
from holdfast.findings import Verdict
from holdfast.run.launch import error_file
from tests.run.scenes import a_rank, a_scene, ended, words

FOUND = Verdict(code="HOLD", slug="any", ranks=(1,), reason="rank 1 is stuck", certain=True)


def left(
    folder: Path, found: Verdict | None, culprit: RankView, file_of: Callable[[int, int], str]
) -> Any:
    """What torch makes of the file we leave."""
    path = folder / "error.json"
    scene = a_scene([a_rank(0), culprit])
    made = error_file.of_failure(found, scene, code=124, wall=1.7e9, file_of=file_of)
    error_file.write({"TORCHELASTIC_ERROR_FILE": str(path)}, made)
    seen = ProcessFailure(local_rank=0, pid=1, exitcode=1, error_file=str(path))
    assert seen.timestamp == 1_700_000_000
    return seen.message


@pytest.mark.parametrize(
    ("found", "culprit", "message", "code"),
    [
        (FOUND, ended(1, 1, said=words("ValueError", "boom")), "ValueError: boom", 1),
        (FOUND, a_rank(1), "rank 1 is stuck", 124),
        (FOUND, ended(1, -SIGKILL), "rank 1 is stuck", -9),
        (None, ended(1, 3), "a rank failed; no rank shows the cause", 3),
    ],
)
def test_the_culprits_own_words_or_the_verdict(
    tmp_path: Path, found: Verdict | None, culprit: RankView, message: str, code: int
) -> None:
    seen = left(tmp_path, found, culprit, lambda attempt, rank: str(tmp_path / "none"))
    assert (seen["message"], seen["errorCode"]) == (message, code)


def test_what_the_rank_recorded_itself_is_passed_on(tmp_path: Path) -> None:
    extra = {"py_callstack": "Traceback…", "timestamp": "1700000000"}
    own = {"message": {"message": "KeyError: 'x'", "extraInfo": extra}}
    (tmp_path / "0.1").write_text(json.dumps(own))
    culprit = ended(1, 1, said=words("KeyError", "'x'"))
    seen = left(tmp_path, FOUND, culprit, lambda a, r: str(tmp_path / f"{a}.{r}"))
    assert seen == {**own["message"], "errorCode": 1}


@pytest.mark.parametrize("text", ["torn", "[]", "{}"])
def test_what_is_no_error_file_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "rank").write_text(text)
    seen = left(tmp_path, FOUND, a_rank(1), lambda *_: str(tmp_path / "rank"))
    assert seen["message"] == "rank 1 is stuck"


def test_a_file_that_cannot_be_written_is_a_remark(capsys: pytest.CaptureFixture[str]) -> None:
    error_file.write({}, {})
    error_file.write({"TORCHELASTIC_ERROR_FILE": "/nowhere/at/all"}, {})
    assert capsys.readouterr().err.count("\n") == 1
