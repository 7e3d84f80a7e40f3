"""What the README shows is what happens: its screen, and its loop copied word for word."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT

README = (ROOT / "README.md").read_text()
NUMBERS = re.compile(r"\b[0-9a-f]{16}\b|\d+(?:\.\d+)?")
RUN_ID = re.compile(r"runs/[\w-]+")
PREAMBLE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(1024, 4))
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
taken = []
optimizer.register_step_post_hook(lambda *_: taken.append(1))
def mean_loss(model, batch):
    return model(batch[0]).pow(2).mean()
"""
AFTERWARDS = """
ckpt.close()
print(f"step {state.step}, optimizer steps {len(taken)}, "
      f"weights {model.weight.double().sum().item():.9f}")
"""


def masked(line: str) -> str:
    """Without what differs from run to run: numbers, pids, digests, the id of the run."""
    return NUMBERS.sub("N", RUN_ID.sub("runs/ID", line.rstrip()))


def console(starting_with: str) -> list[str]:
    """The lines below that command, up to the end of its block."""
    (block,) = re.findall(rf"^\$ {re.escape(starting_with)}.*?(?=^```$)", README, re.M | re.S)
    return str(block).splitlines()


@pytest.mark.xdist_group("readme")
def test_the_screen_of_run_is_what_run_prints(tmp_path: Path) -> None:
    command, *shown = console("BREAK=1 holdfast run")
    words = shlex.split(command.removeprefix("$ "))
    at = words.index("holdfast")
    variables = dict(word.split("=", 1) for word in words[:at])
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    done = subprocess.run(
        [sys.executable, "-m", *words[at:]],
        cwd=tmp_path,
        env={**os.environ, **variables, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    printed = iter(masked(line) for line in done.stdout.splitlines())
    for line in shown:
        if line.strip() != "…":
            assert any(masked(line) == other for other in printed), f"{line}\n\n{done.stdout}"


def test_the_loop_can_be_copied(tmp_path: Path) -> None:
    (loop,) = re.findall(r"^```python\n(import holdfast.*?)^```$", README, re.M | re.S)
    script = tmp_path / "train.py"
    script.write_text(PREAMBLE + loop + AFTERWARDS)

    def start() -> list[str]:
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    (first,) = (line for line in start() if line.startswith("step "))
    assert first.startswith("step 4, optimizer steps 4, "), "1024 samples, 256 a step"
