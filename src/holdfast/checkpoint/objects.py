"""One object of a state: how its state is had and given back."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Optimizer

from holdfast.checkpoint import generators, modules
from holdfast.errors import ConfigError


def has_state(thing: object) -> bool:
    return generators.is_generator(thing) or (
        hasattr(thing, "state_dict") or hasattr(thing, "load_state_dict")
    )


def refuse_stateless(name: str, thing: object) -> None:
    if generators.is_generator(thing):
        return
    for method in ("state_dict", "load_state_dict"):
        if not callable(getattr(thing, method, None)):
            hint = "give it a holdfast.Sampler or holdfast.StatefulLoader" if name == "data" else ""
            raise ConfigError(
                f"State({name}=…) is a {type(thing).__name__} without {method}()", hint=hint
            )


def state_of(thing: Any) -> Any:
    if isinstance(thing, nn.Module):
        return modules.module_state(thing)
    if generators.is_generator(thing):
        return generators.capture_one(thing)
    return thing.state_dict()


def load_state(thing: Any, saved: Any) -> None:
    if isinstance(thing, nn.Module):
        modules.load_module(thing, saved)
    elif isinstance(thing, Optimizer):
        modules.load_optimizer(thing, saved)
    elif generators.is_generator(thing):
        generators.restore_one(thing, saved)
    else:
        thing.load_state_dict(saved)
