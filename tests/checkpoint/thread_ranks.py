"""Ranks as threads: a whole job of checkpoints in this process, with real writers and a real disk.

Only the process group is played: a place for each thread, and one store in memory.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from holdfast.checkpoint import process_group
from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.message_board import MemoryStore
from holdfast.checkpoint.state import State

T = TypeVar("T")


class SharedMemory(MemoryStore):
    """A store for several threads."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def add(self, key: str, amount: int, /) -> int:
        with self._lock:
            return super().add(key, amount)


class ThreadRanks:
    """One launch of a job."""

    def __init__(self, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.size = size
        self._local = threading.local()
        store = SharedMemory()
        monkeypatch.setattr(process_group, "rank_and_world_size", lambda: (self._local.rank, size))
        monkeypatch.setattr(process_group, "job_store", lambda: store)

    @property
    def rank(self) -> int:
        """Of the thread that asks."""
        found: int = self._local.rank
        return found

    def run(self, work: Callable[[int], T]) -> list[T]:
        """What each rank answers; the first exception of any."""

        def as_rank(rank: int) -> T:
            self._local.rank = rank
            return work(rank)

        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(as_rank, range(self.size), timeout=60))


def small_model() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """The same on all ranks: threads share torch's generator."""
    model = torch.nn.Linear(4, 2)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(
                torch.linspace(-1.0, 1.0 + number, parameter.numel()).view_as(parameter)
            )
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()


def job(folder: Path, steps: int, **options: Any) -> Callable[[int], dict[str, Any]]:
    """A rank that resumes, trains some steps and saves at the last."""

    def rank(number: int) -> dict[str, Any]:
        torch.manual_seed(number)
        model, optimizer = small_model()
        accept = options.get("accept", ())
        state = State(model=model, optimizer=optimizer, note=number, per_rank=("note",))
        made = {
            name: options[name]
            for name in ("every", "every_steps", "keep", "config")
            if name in options
        }
        with Checkpoint(folder, state, **made) as ckpt:
            first = ckpt.resume(accept=accept)
            for _ in range(steps):
                train(model, optimizer)
                ckpt.step()
            safe = ckpt.save() if steps else True
        return {
            "first": first,
            "safe": safe,
            "last": ckpt.last_committed,
            "weights": model.state_dict()["weight"].clone(),
            "note": state.extras["note"],
        }

    return rank
