"""Whatever lies in the folder where holdfast was started is no part of the job."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.check.smoke import conduct
from tests.check.smoke.smokes import LOOPBACK
from tests.faults.machines import a_plan

TORCH_IS_A_FOLDER = """
import sys
from holdfast.errors import EnvironmentFailure
from holdfast.check.smoke import conduct
from tests.faults.machines import a_plan
sys.path[:] = sys.argv[1:]
try:
    conduct.run(a_plan(), loopback=(), say=print)
except EnvironmentFailure as problem:
    print(problem.sentence)
"""


def test_the_current_folder_shadows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("needs torch: the rank imports it")
    for name in ("random.py", "torch.py", "holdfast.py"):
        (tmp_path / name).write_text("raise ImportError('a file of the user')\n")
    monkeypatch.chdir(tmp_path)
    plan = a_plan(nproc=1, port=0, environment=dict(os.environ))
    seen = conduct.run(plan, loopback=LOOPBACK, say=lambda _line: None)
    assert [s.reason for s in seen.stages if s.status == "failed"] == []
    assert {s.name for s in seen.stages if s.status == "ok"} >= {"start", "store", "gloo"}


def test_a_mere_folder_named_torch_is_no_torch(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", TORCH_IS_A_FOLDER, str(tmp_path)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "the smoke test needs torch, and this Python has none\n"
