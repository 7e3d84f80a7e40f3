"""Trainings inside other people's loops, resumed after a failure: equal to undisturbed ones.

Weights, evaluations, best metric and the step at which early stopping stops are compared, with
gradient accumulation, in two ranks (the scripts beside this file).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SAME = {
    "hf_scenarios": (
        *("eval-at-the-saved-step", "epoch-end", "mid-epoch", "best-model", "early-stopping"),
        "damaged",
    ),
    "lightning_scenarios": (
        *("validation-at-the-saved-step", "middle", "epoch-end", "before-the-last"),
        *("after-the-first", "early-stopping", "scaler"),
    ),
    "accelerate_scenarios": ("middle", "epoch-end", "first-of-an-epoch", "seedable-sampler"),
}
POSITION = {"hf_scenarios": "per-rank", "lightning_scenarios": "global"}


def ran(script: str, folder: Path) -> str:
    (folder / "tmp").mkdir()
    places = {"FOLDER": str(folder), "TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(ROOT)}
    launch = (
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
    )  # fmt: skip
    done = subprocess.run(
        [*launch, "-m", f"tests.integrations.{script}"],
        capture_output=True, text=True, timeout=300, check=False, cwd=ROOT,
        env={**os.environ, **places, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    "script",
    [
        "accelerate_scenarios",
        pytest.param("hf_scenarios", marks=pytest.mark.long),
        pytest.param("lightning_scenarios", marks=pytest.mark.long),
    ],
)
def test_a_failure_changes_nothing(tmp_path: Path, script: str) -> None:
    if script == "hf_scenarios" and find_spec("transformers") is None:
        pytest.skip("needs transformers, which needs Python 3.11")
    said = ran(script, tmp_path)
    outcomes = dict(re.findall(r"^([\w-]+): (same|DIFFERENT)", said, re.MULTILINE))
    assert outcomes == dict.fromkeys(SAME[script], "same"), said
    if script == "hf_scenarios":
        assert "left behind: []" in said
    if script == "accelerate_scenarios":
        assert "dispatched: loader: with dispatch_batches=True accelerate cannot return" in said
    manifests = list(tmp_path.rglob("ckpts/step-*/manifest.json"))
    assert manifests
    # 'unknown' would make `run` say that samples are repeated.
    found = {json.loads(path.read_bytes())["data"] for path in manifests}
    assert found == {POSITION.get(script, "per-rank")}
