"""A checkpoint of one rank, saved by the library as a script does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.state import State


def small_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))


def optimizer_of(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=0.1)


def save(folder: Path, *, steps: int = 1, model: nn.Module | None = None, **more: Any) -> nn.Module:
    """Resume, train so many steps, save after the last."""
    model = model or small_model()
    optimizer = optimizer_of(model)
    state = State(model=model, optimizer=optimizer, best=0.5)
    with Checkpoint(folder, state, every="2h", **more) as ckpt:
        ckpt.resume()
        for _ in range(steps):
            model(torch.randn(5, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            ckpt.step()
        assert ckpt.save()
    return model


def equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def flip_a_bit(path: Path) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[-3] ^= 1
    path.write_bytes(damaged)
