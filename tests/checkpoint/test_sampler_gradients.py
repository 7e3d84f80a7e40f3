"""With the weights, the accumulated and averaged gradient is that of the whole global batch."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn

from tests.checkpoint.sampler_ranks import PlainLoader, sampler
from tests.places import TARGETS

TARGET = TARGETS / "weighted_ddp.py"


def gradient(model: nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


@pytest.mark.parametrize(
    ("length", "batch", "world_size", "micro"),
    [
        (60, 12, 4, 3),
        (47, 10, 3, 2),
        (53, 11, 4, 2),
        (40, 7, 5, 2),
        (23, 23, 3, 4),
        (13, 5, 2, 1),
        (7, 3, 4, 1),
    ],
)
def test_whatever_the_cut(length: int, batch: int, world_size: int, micro: int) -> None:
    torch.manual_seed(1)
    inputs, targets = torch.randn(length, 5, dtype=torch.float64), torch.randn(length, 1).double()
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    sizes = {"length": length, "global_batch_size": batch, "micro_batch_size": micro}
    ranks = [sampler(rank, world_size, **sizes) for rank in range(world_size)]
    loops = [one.follow(PlainLoader(one)) for one in ranks]
    for _ in range(ranks[0].batches):
        summed, seen = torch.zeros(()).double(), []
        for one, loop in zip(ranks, loops, strict=True):
            model.zero_grad()
            for samples in loop:
                loss = nn.functional.mse_loss(model(inputs[samples]), targets[samples])
                torch.autograd.backward(loss * one.loss_weight)
                seen += samples if one.loss_weight else []
                if one.is_last_micro_batch:
                    break
            summed = summed + gradient(model)
        model.zero_grad()
        torch.autograd.backward(nn.functional.mse_loss(model(inputs[seen]), targets[seen]))
        assert torch.allclose(summed / world_size, gradient(model), rtol=1e-10, atol=1e-14)


def test_three_real_ranks_with_ddp() -> None:
    """10 samples on 3 ranks, two micro-batches each, and a last batch of 4."""
    done = subprocess.run(
        [sys.executable, str(TARGET)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["batch", "0:", "equal", "batch", "1:", "equal",
                                   "batch", "2:", "equal"]  # fmt: skip
