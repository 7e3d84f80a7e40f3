"""What is what in a checkpoint of others: the model, the optimizer, the step. Pure.

Known are the layouts that scripts, Lightning, torchtitan and the tutorials of PyTorch write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import ConfigError

_MODEL = ("model", "model_state_dict", "state_dict", "module", "net", "weights")
_OPTIMIZER = ("optimizer", "optimizer_state_dict", "optim", "optimizer_state", "optimizer_states")
_STEP = ("step", "global_step", "iteration", "iter", "train_step")
_EPOCH = ("epoch", "current_epoch")
_MOST = 10**15
"""steps; beyond it a number is something else"""


@dataclass
class Contents:
    model: dict[str, Any]
    optimizer: dict[str, Any] | None = None
    """state and param_groups, by number or by name"""
    step: int | None = None
    epoch: int = 0
    notes: list[str] = field(default_factory=list)


def sort_out(found: Mapping[Any, Any], is_tensor: Callable[[object], bool]) -> Contents:
    """Raises ConfigError where no model can be made out."""
    inside = found
    while len(inside) == 1 and isinstance(next(iter(inside.values())), dict):
        only = next(iter(inside))
        if only in _MODEL:
            break
        inside = inside[only]  # {"app": {"model": …}}

    def is_model(value: object) -> bool:
        return isinstance(value, dict) and any(is_tensor(each) for each in value.values())

    key = next((key for key in _MODEL if is_model(inside.get(key))), None)
    if key is None and not is_model(inside):
        raise ConfigError(
            f"no model in it: its keys are {', '.join(map(repr, list(inside)[:8])) or 'none'}",
            hint=f"save the model's state_dict() alone, or under one of: {', '.join(_MODEL)}",
        )
    if key is None:
        extra = [name for name, each in inside.items() if not is_tensor(each)]
        made = Contents({n: each for n, each in inside.items() if is_tensor(each)})
        taken = _take_rest(made, inside, extra)
    else:
        made = Contents(dict(inside[key]))
        taken = _take_rest(made, inside, [other for other in inside if other != key])
    made.model = _unwrapped(made.model, made.notes)
    if taken:
        made.notes.append(f"left out: {', '.join(map(str, taken[:12]))}")
    return made


def _take_rest(made: Contents, inside: Mapping[Any, Any], keys: list[Any]) -> list[Any]:
    """Optimizer, step and epoch; returns the keys that mean nothing to us."""
    left = []
    for key in keys:
        value = inside[key]
        if key in _STEP and made.step is None and _is_count(value):
            made.step = int(value)
        elif key in _EPOCH and _is_count(value):
            made.epoch = int(value)
        elif key in _OPTIMIZER and made.optimizer is None:
            made.optimizer = _optimizer(value)
            if made.optimizer is None:
                made.notes.append(f"{key} has an unknown layout: not imported")
        else:
            left.append(key)
    return left


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST


def _optimizer(value: Any) -> dict[str, Any] | None:
    if isinstance(value, list) and len(value) == 1:  # Lightning has a list of them
        value = value[0]
    if not isinstance(value, dict):
        return None
    if any(str(key).startswith("state.") for key in value):
        value = _unflattened(value)
    groups, state = value.get("param_groups"), value.get("state", {})
    well_made = isinstance(state, dict) and isinstance(groups, list) and all(
        isinstance(group, dict) and isinstance(group.get("params"), list) for group in groups
    )  # fmt: skip
    return {"state": state, "param_groups": groups} if well_made else None


def _unflattened(value: dict[str, Any]) -> dict[str, Any]:
    """`flatten_optimizer_state_dict=True`: 'state.NAME.exp_avg', 'param_groups.NAME.lr'."""
    state: dict[str, dict[str, Any]] = {}
    options: dict[str, dict[str, Any]] = {}
    for key, each in value.items():
        kind, _, rest = str(key).partition(".")
        name, _, what = rest.rpartition(".")
        place = {"state": state, "param_groups": options}.get(kind)
        if place is not None and name:
            place.setdefault(name, {})[what] = each
    groups: list[dict[str, Any]] = []
    for name in options or state:
        mine = options.get(name, {})
        same = next((g for g in groups if {**g, "params": 0} == {**mine, "params": 0}), None)
        if same is None:
            groups.append({**mine, "params": [name]})
        else:
            same["params"].append(name)
    return {"state": state, "param_groups": groups}


def _unwrapped(model: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Without what DistributedDataParallel and torch.compile add to names."""
    names = {name: str(name) for name in model}
    if all(name.startswith(("module.", "_orig_mod.")) for name in names.values()):
        names = {n: _drop_first(_drop_first(name)) for n, name in names.items()}
    names = {
        n: ".".join(part for part in name.split(".") if part != "_orig_mod")
        for n, name in names.items()
    }
    if len(set(names.values())) < len(names):
        raise ConfigError("two tensors of the model would have one name without the wrappers'")
    if any(n != name for n, name in names.items()):
        notes.append("names without 'module.' and '_orig_mod.', which wrappers had added")
    return {names[name]: value for name, value in model.items()}


def _drop_first(name: str) -> str:
    return name.removeprefix("_orig_mod.").removeprefix("module.")
