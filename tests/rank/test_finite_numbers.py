"""Losses and gradient norms that are not finite: with real torch, in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.rank import delivery

SCRIPT = """
import sys, traceback
import torch
from holdfast.rank import finite_numbers, heartbeat_page, own_page, torch_hooks

own_page.page = heartbeat_page.HeartbeatPage(memoryview(bytearray(4096)))
finite_numbers.follow(torch)
torch_hooks._count_steps()
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([weight], lr=0.0)
nan, inf = float("nan"), float("inf")

def step(*losses, norm=None, skipped=False):
    optimizer.zero_grad()
    for loss in losses:
        ((weight * 1.0).sum() * 0.0 + loss).backward()
    if norm is not None:
        weight.grad.fill_(norm)
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        weight.grad.zero_()
    if not skipped:
        optimizer.step()

step(1.0)                        # 1
step(1.0, nan)                   # 2: one of two microbatches
step(1.0, norm=2.0)              # 3
step(1.0, norm=inf, skipped=True)  # a GradScaler looks for its scale: no step
step(1.0, norm=1.0)              # 4
step(1.0, norm=nan)              # 5
for _ in range(5):               # 6 to 10
    step(inf)
step(1.0)                        # 11
scaler = torch.amp.GradScaler("cpu")
step(inf, skipped=True)          # its scale was too large
scaler.scale(torch.ones(1))
scaler._found_inf_per_device = lambda optimizer: {}
scaler.update(2.0)
torch.func.vmap(torch.func.grad(lambda x: (x * x).sum()))(torch.ones(2, 3))
torch.func.grad(lambda x: (x * x).sum())(torch.ones(3))
(weight * nan).backward(torch.ones(3))  # no loss: its gradient was given
step(1.0)                        # 12
try:
    weight.sum().backward(torch.ones(7))
except RuntimeError:
    assert "finite_numbers" not in traceback.format_exc().split("_make_grads")[0]
assert finite_numbers.numbers is not None, "nothing of this was too odd for it"
"""
COMPILED = """
clip = lambda: torch.nn.utils.clip_grad_norm_([weight], 1.0)
torch.compile(clip, backend="eager", fullgraph=True)()
"""


@pytest.mark.long
def test_a_compiler_sees_no_look_of_ours(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT + COMPILED],
        env={**os.environ, delivery.EVENTS: str(tmp_path / "events.jsonl")},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_what_is_not_finite_is_told_with_its_step(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, delivery.EVENTS: str(file)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(one["what"], one["step"], one["value"], one["row"]) for one in told] == [
        ("loss", 2, "nan", 1),
        ("gradients", 5, "nan", 1),
        ("loss", 6, "inf", 1),
        ("loss", 7, "inf", 2),
        ("loss", 8, "inf", 3),
    ]
