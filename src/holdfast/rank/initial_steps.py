"""Optimizer steps that train nothing.

An optimizer has no state before its first step, so there is nothing that a checkpoint could be
loaded into. Libraries therefore take a step with zero gradients, before they load or train
anything: torch.distributed.checkpoint for every `get_state_dict` and `set_state_dict`, DeepSpeed
for every start. Neither the job nor its optimizer has come any further by it.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

_IN_ANY_MODULE = ""
TAKEN_BY: dict[str, str | tuple[str, ...]] = {
    "_init_optim_state": _IN_ANY_MODULE,  # torch.distributed.checkpoint, and copies of it
    "initialize_optimizer_states": _IN_ANY_MODULE,  # every ZeRO stage of DeepSpeed
    "init_state": ("torch.distributed.optim", "torchrec.optim"),
}
"""functions that take such a step, and how the names of their modules begin"""
FRAMES = 16
"""between a hook and that function: torch's wrapper of `step`, a scheduler's, those of others"""

_given_state: weakref.WeakSet[Any] = weakref.WeakSet()


def is_one(optimizer: Any) -> bool:
    """Whether the step that calls this hook is one of them."""
    frame = sys._getframe(1)  # noqa: SLF001
    for _ in range(FRAMES):
        modules = TAKEN_BY.get(frame.f_code.co_name)
        if modules is not None and frame.f_globals.get("__name__", "").startswith(modules):
            _given_state.add(optimizer)
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def was_given_state(optimizer: Any) -> bool:
    """By such a step; until a checkpoint is loaded, its own count says 1, and it has taken none."""
    return optimizer in _given_state
