"""Rank 0 just before its first step: did it start from scratch, or resume? Reported once; and once
more when its parameters have changed, since equal ones prove nothing where they never do.

What is reported decides nothing: the launcher compares it with the first attempt's.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from holdfast.rank import events, initial_steps, own_page, step_counter

PARAMETERS = 16
VALUES = 32
"""of each of them: a few hundred values in all, copied once"""
OTHER_WAYS = ("safetensors", "deepspeed", "megatron", "tensorstore")
"""libraries that can fill parameters without torch.load or load_state_dict"""
DCP_LOAD = "torch.distributed.checkpoint.state_dict_loader"


class FirstStepHook:
    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._done = False
        self._moved = False
        self._digest = ""
        self._optimizer: step_counter.Caller = (0, 0)
        self._steps = 0
        """that it has taken since"""
        self.loaded = self.optimizer_loaded = False
        self._unwrap: list[Callable[[], None]] = []

    def expect(self) -> None:
        """Have the first call of any optimizer reported; only rank 0 does."""
        if os.environ.get("RANK") != "0":
            return
        torch = self._torch
        for owner, name in (
            (torch, "load"),
            (torch.nn.Module, "load_state_dict"),
            (torch.optim.Optimizer, "load_state_dict"),
        ):
            self._notice(owner, name)
        # torch imports this module itself, and then deletes its name from torch.optim.
        optimizer: Any = sys.modules["torch.optim.optimizer"]
        optimizer.register_optimizer_step_pre_hook(before_step(self))

    def _notice(self, owner: Any, name: str) -> None:
        load = getattr(owner, name)

        @functools.wraps(load)
        def load_and_note(*args: Any, **kwargs: Any) -> Any:
            # accelerate loads every optimizer with its own, still empty, state.
            optimizer = owner is self._torch.optim.Optimizer
            if not optimizer or self.loaded or _has_state(args, kwargs):
                self.loaded = True
                self.optimizer_loaded |= optimizer
            return load(*args, **kwargs)

        def unwrap() -> None:
            if getattr(owner, name) is load_and_note:  # else it was wrapped again
                setattr(owner, name, load)

        setattr(owner, name, load_and_note)
        self._unwrap.append(unwrap)

    def before(self, optimizer: Any) -> None:
        if self._moved or own_page.page is None or initial_steps.is_one(optimizer):
            return
        if self._done:
            self._look_whether_moved(optimizer)
            return
        self._done = True
        self._optimizer = step_counter.caller(optimizer)
        self._digest = _or(lambda: digest(self._torch, optimizer), "")
        for unwrap in self._unwrap:
            unwrap()
        events.tell(
            "first-step",
            digest=self._digest,
            optimizer_step=_or(lambda: steps_counted(self._torch, optimizer), None),
            loaded=self.loaded,
            optimizer_loaded=self.optimizer_loaded,
            other_ways=any(name in sys.modules for name in OTHER_WAYS) or _dcp_was_used(),
        )

    def _look_whether_moved(self, optimizer: Any) -> None:
        """After 1, 2, 4, 8 … steps: a schedule may begin with a learning rate of 0."""
        if step_counter.caller(optimizer) != self._optimizer:
            return
        self._steps += 1
        if self._steps & (self._steps - 1):
            return
        now = _or(lambda: digest(self._torch, optimizer), "")
        if now and self._digest and now != self._digest:
            self._moved = True
            events.tell("parameters-moved", step=self._steps)


def before_step(first: FirstStepHook) -> Callable[..., None]:
    def before_optimizer_step(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        try:
            first.before(optimizer)
        except Exception as problem:  # noqa: BLE001
            own_page.complain(problem)

    # What `torch.compiler.disable` sets, without the second that importing the compiler takes.
    before_optimizer_step._torchdynamo_disable = True  # type: ignore[attr-defined] # noqa: SLF001
    return before_optimizer_step


def digest(torch: Any, optimizer: Any) -> str:
    """Of a few values of a few parameters, spread over all of them; '' where none can be had."""
    if is_capturing(torch):
        return ""
    parameters = list(_parameters(optimizer))
    stride = max(1, len(parameters) // PARAMETERS)
    values = [_some_values(parameter) for parameter in parameters[::stride][:PARAMETERS]]
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16] if any(values) else ""


def _parameters(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from (p for p in group["params"] if p.requires_grad)


def _some_values(parameter: Any) -> list[Any]:
    """Its first row, or what this rank holds of it: a DTensor's own methods may communicate."""
    local = getattr(parameter, "_local_tensor", parameter).detach()
    while local.dim() > 1:
        if not local.shape[0]:
            return []
        local = local[0]  # a view; `flatten` would copy what is not contiguous
    found = local.reshape(-1)[:VALUES].tolist()
    return found if isinstance(found, list) else [found]


def steps_counted(torch: Any, optimizer: Any) -> int | None:
    """As `optimizer_step` of analysis/scene/checkpoints.py says."""
    states = list(optimizer.state.values())
    if not states:
        return 0
    counts = [state["step"] for state in states[:PARAMETERS] if "step" in state]
    if not counts or is_capturing(torch):
        return None
    counted = max(int(count) for count in counts)
    return 0 if counted == 1 and initial_steps.was_given_state(optimizer) else counted


def _has_state(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Of `optimizer.load_state_dict(document)`: whether that holds more than settings."""
    document = next((one for one in (*args, *kwargs.values()) if isinstance(one, dict)), {})
    return bool(document.get("state"))


def is_capturing(torch: Any) -> bool:
    """No value may be read while a CUDA graph is being made: that would break the capture."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


def _dcp_was_used() -> bool:
    """Imported by the script: torch itself does not, before it is asked to load."""
    return DCP_LOAD in sys.modules


def _or(read: Callable[[], Any], otherwise: Any) -> Any:
    """Odd tensors (meta, quantised, of a subclass) are no reason to complain."""
    try:
        return read()
    except Exception:  # noqa: BLE001
        return otherwise
