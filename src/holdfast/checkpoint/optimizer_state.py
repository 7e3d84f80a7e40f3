"""Optimizers: their state by the names of their parameters, and back without a change of type.

A torch optimizer numbers its parameters, so a state dict alone gives momenta to whatever has the
same number and shape. The names of the parameters are saved beside it: a model whose parameters
come in another order gets each momentum where it belongs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from holdfast.checkpoint.tensors import device_for, dtype_name
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from torch.optim import Optimizer

ParameterNames = Mapping[torch.Tensor, str]
"""of the models of a State: {parameter: 'model.fc.weight'}"""
Groups = list[list[str]]
"""the names of the parameters in each group of an optimizer"""

_LOCAL_PART = {"ZeroRedundancyOptimizer": "optim"}
"""what of it holds the state of this rank, and of this rank only"""


def groups(optimizer: Optimizer, names: ParameterNames) -> Groups:
    """A parameter that no model of the State has goes by its number in the group."""
    return [
        [names.get(parameter, str(i)) for i, parameter in enumerate(group["params"])]
        for group in _local(optimizer).param_groups
    ]


def structure(name: str, optimizer: Optimizer, names: ParameterNames) -> dict[str, str]:
    """By its parameters: most optimizers make their own state in the first step only."""
    found = {name: type(optimizer).__name__}
    parameters = [group["params"] for group in _local(optimizer).param_groups]
    for number, (named, mine) in enumerate(zip(groups(optimizer, names), parameters, strict=True)):
        found |= {
            f"{name}.group {number}.{parameter_name}": described(parameter)
            for parameter_name, parameter in zip(named, mine, strict=True)
        }
    return found


def described(tensor: torch.Tensor) -> str:
    return f"{dtype_name(tensor.dtype)} {list(tensor.shape)}"


def is_elsewhere(thing: object) -> bool:
    """An optimizer that has parameters on other devices than the current GPU."""
    groups = getattr(thing, "param_groups", ())
    devices = {one.device for group in groups for one in group["params"] if not one.is_cpu}
    return bool(devices) and devices != {device_for("cuda")}  # which would start CUDA


def state_of(optimizer: Optimizer) -> dict[str, Any]:
    local = _local(optimizer)
    if local is not optimizer:  # schedulers have changed the outer one only
        _copy_options(optimizer, local)
    return local.state_dict()  # type: ignore[no-any-return]


def load(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """torch casts the state to its parameter's type, in lists and dicts, too: put back."""
    local = _local(optimizer)
    local.load_state_dict(saved)
    parameters = [p for group in local.param_groups for p in group["params"]]
    numbers = [n for group in saved["param_groups"] for n in group["params"]]
    for parameter, number in zip(parameters, numbers, strict=True):
        if number in saved["state"] and parameter in local.state:
            local.state[parameter] = _not_cast(saved["state"][number], local.state[parameter])
    if local is not optimizer:
        _copy_options(local, optimizer)


def in_order(saved: dict[str, Any], then: Groups, now: Groups) -> dict[str, Any]:
    """The saved state with its numbers in the order in which the optimizer has its parameters."""
    if then == now:
        return saved
    if [sorted(group) for group in then] != [sorted(group) for group in now]:
        raise ConfigError("the optimizer's groups hold other parameters than when it was saved")
    return saved | {
        "param_groups": [
            _group_in_order(*each) for each in zip(saved["param_groups"], then, now, strict=True)
        ]
    }


def _group_in_order(
    group: dict[str, Any], then: Sequence[str], now: Sequence[str]
) -> dict[str, Any]:
    place = {name: i for i, name in enumerate(then)}
    of_parameters = [key for key in ("params", "param_names") if key in group]
    return group | {key: [group[key][place[name]] for name in now] for key in of_parameters}


def _not_cast(saved: Any, loaded: Any) -> Any:
    """What was loaded, on the device where it is now, with the types that were saved. Where the
    optimizer has made something else of it, that stays."""
    if isinstance(saved, torch.Tensor) and isinstance(loaded, torch.Tensor):
        return loaded if loaded.dtype == saved.dtype else saved.to(loaded.device)
    if isinstance(saved, dict) and isinstance(loaded, dict) and saved.keys() == loaded.keys():
        for key, value in saved.items():
            loaded[key] = _not_cast(value, loaded[key])
        return loaded
    is_row = isinstance(saved, list | tuple) and type(saved) is type(loaded)
    if is_row and len(saved) == len(loaded):
        return type(saved)(map(_not_cast, saved, loaded))
    # torch takes a text for a list of letters.
    return saved if isinstance(saved, str | bytes) and isinstance(loaded, str | bytes) else loaded


def _local(optimizer: Any) -> Any:
    inside = next((_LOCAL_PART[kind.__name__] for kind in type(optimizer).__mro__
                   if kind.__name__ in _LOCAL_PART), "")  # fmt: skip
    return getattr(optimizer, inside) if inside else optimizer


def _copy_options(source: Any, target: Any) -> None:
    """Learning rates and the like, of each group."""
    for mine, theirs in zip(source.param_groups, target.param_groups, strict=True):
        theirs.update({key: value for key, value in mine.items() if key != "params"})
