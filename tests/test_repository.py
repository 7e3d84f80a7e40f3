"""What a public host and other people's tools read of this repository is true."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.places import ROOT

HOOK = ROOT / ".pre-commit-hooks.yaml"
ACTION = ROOT / "action.yml"
YAML = [HOOK, ACTION, ROOT / ".pre-commit-config.yaml", *sorted(ROOT.glob(".github/**/*.yml"))]
HANGS = """import torch.distributed as dist
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    dist.barrier()
dist.destroy_process_group()
"""


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", YAML, ids=lambda path: path.name)
def test_yaml_can_be_read(path: Path) -> None:
    assert read(path)


def test_workflows_call_targets_that_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    jobs = read(ROOT / ".github/workflows/ci.yml")["jobs"].values()
    lines = [step.get("run", "") for job in jobs for step in job["steps"]]
    called = {name for line in lines for name in re.findall(r"\bmake ([\w-]+)", line)}
    assert called
    assert called <= targets


def test_workflows_cover_every_python_that_is_promised() -> None:
    promised = {
        line.rpartition(" ")[2]
        for line in metadata.metadata("holdfast").get_all("Classifier") or ()
        if re.search(r"Python :: 3\.\d+$", line)
    }
    tested = read(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert set(tested) == promised


def test_the_hook_for_users_finds_a_fault(tmp_path: Path) -> None:
    (hook,) = read(HOOK)
    script = tmp_path / "train.py"
    script.write_text(HANGS)
    assert re.search(hook["files"], script.name)
    program, *arguments = hook["entry"].split()
    assert program in {point.name for point in metadata.entry_points(group="console_scripts")}
    command = [sys.executable, "-m", "holdfast", *arguments, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "rank-conditional-code" in done.stdout


def test_the_action_calls_lint_with_options_it_has(tmp_path: Path) -> None:
    (line,) = re.findall(r"bin/holdfast\" (lint .*) --fail-on", ACTION.read_text())
    script = tmp_path / "train.py"
    script.write_text(HANGS)
    command = [sys.executable, "-m", "holdfast", *line.split(), "--fail-on", "error", "--", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("::error ")
    assert done.returncode == 1
