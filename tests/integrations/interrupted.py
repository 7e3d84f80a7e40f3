"""For the scripts beside this file: a training, and the same one that fails and is resumed.

Everything happens in one process, because the libraries take ten seconds to import. The failure is
an exception on all ranks at one step; that a killed rank leaves nothing else behind is what the
tests of the examples show.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from holdfast.checkpoint.checkpoint import Checkpoint

FOLDER = Path(os.environ["FOLDER"])
_step = Checkpoint.step


class FailedError(Exception):
    """The failure that the run is resumed after."""


def save_at(*steps: int) -> None:
    """A save of exactly these steps, where `Checkpoint.step` makes its own."""

    def step_and_save(self: Checkpoint) -> None:
        _step(self)
        if self.state.step in steps:
            assert self.save()

    Checkpoint.step = step_and_save  # type: ignore[method-assign]


def fail_at(step: int) -> Any:
    """In the optimizer's step of that number."""
    made = 0

    def count(*_: Any) -> None:
        nonlocal made
        made += 1
        if made == step:
            raise FailedError

    return register_optimizer_step_post_hook(count)


def same_after_a_failure(
    name: str,
    train: Callable[[str], dict[str, Any]],
    *,
    saved: int | tuple[int, ...],
    failed: int,
    between: Callable[[Path], None] = lambda _: None,
) -> None:
    """Print whether the outcome of a run that failed and resumed equals that of one that did not.

    `train(folder)` returns what must be equal.
    """
    save_at()
    undisturbed = train(str(FOLDER / f"{name}-undisturbed"))
    folder = FOLDER / f"{name}-failed"
    save_at(*((saved,) if isinstance(saved, int) else saved))
    hook = fail_at(failed)
    try:
        train(str(folder))
    except FailedError:
        pass
    else:
        raise AssertionError(f"{name} did not fail")
    finally:
        hook.remove()
        save_at()
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    if os.environ.get("RANK", "0") == "0":
        between(folder)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    resumed = train(str(folder))
    if os.environ.get("RANK", "0") == "0":
        if resumed == undisturbed:
            print(f"{name}: same", flush=True)
        else:
            print(f"{name}: DIFFERENT\n  {undisturbed}\n  {resumed}", flush=True)


def digest(model: torch.nn.Module) -> str:
    values = [tensor.contiguous().numpy().tobytes() for tensor in model.state_dict().values()]
    return hashlib.sha256(b"".join(values)).hexdigest()[:16]
