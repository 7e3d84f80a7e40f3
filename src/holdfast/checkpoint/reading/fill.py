"""A saved state into a model and an optimizer, whether either of them is sharded or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from holdfast.checkpoint import object_state, optimizer_state, sharded
from holdfast.checkpoint.reading.saved_state import SavedState, TensorOnDisk, read_all
from holdfast.checkpoint.sharded_index import SavedTensor, ShardIndex
from holdfast.checkpoint.sharded_layout import held_by
from holdfast.checkpoint.sharded_tree import (
    NamedParameters,
    ShardRestorer,
    TensorToFill,
    empty_like_parameter,
)
from holdfast.checkpoint.tensors import dtype_name
from holdfast.checkpoint.tree import DamagedTreeError
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


def refuse_other_structure(
    saved: SavedState, model: nn.Module, optimizer: Optimizer | None
) -> None:
    """Before anything is changed. Another dtype is fine: values are converted."""
    now = object_state.structure("model", model, {})
    now = {name: what for name, what in now.items() if name not in _tied(saved, model)}
    then = {name: what for name, what in saved.structure().items() if name.startswith("model.")}
    differ = object_state.first_differences(_shapes(then), _shapes(now))
    if not differ and optimizer is not None:
        differ = _other_optimizer(saved, model, optimizer)
    if differ:
        raise ConfigError(f"{saved.path} does not fit this model: {differ}")


def _other_optimizer(saved: SavedState, model: nn.Module, optimizer: Optimizer) -> str:
    then, now = saved.structure().get("optimizer"), type(optimizer).__name__
    if then != now and not saved.manifest.imported:  # other formats do not name it
        return f"its optimizer is {then or 'absent'}, this one is {now}"
    groups, mine = saved.parameter_groups, NamedParameters(model, optimizer).groups()
    if groups is not None and [sorted(one) for one in groups] != [sorted(one) for one in mine]:
        return "the optimizer's groups hold other parameters than when it was saved"
    return ""


def _tied(saved: SavedState, model: nn.Module) -> dict[str, str]:
    """'model.NAME' that was not saved -> the saved name of the same parameter: other formats write
    tied weights once."""
    if not saved.manifest.imported:
        return {}
    then, parameters = saved.structure(), object_state.parameter_names(model)
    first = {id(each): name for name, each in reversed(parameters.items())
             if f"model.{name}" in then}  # fmt: skip
    return {
        f"model.{name}": first[id(each)]
        for name, each in parameters.items()
        if f"model.{name}" not in then and id(each) in first
    }


def _shapes(structure: Mapping[str, str]) -> dict[str, str]:
    return {name: what[what.find("[") :] if "[" in what else what
            for name, what in structure.items()}  # fmt: skip


def model_and_optimizer(saved: SavedState, model: nn.Module, optimizer: Optimizer | None) -> None:
    try:
        with torch.no_grad():
            if saved.kind == "sharded":
                _from_shards(saved, model, optimizer)
            else:
                _model_from_plain(saved, model)
                if optimizer is not None:
                    _optimizer_from_plain(saved, model, optimizer)
    except (RuntimeError, ValueError, KeyError) as refused:
        if isinstance(refused, ConfigError | DamagedTreeError):
            raise
        raise ConfigError(
            f"the model or optimizer did not take its saved state: {refused}"
        ) from refused


def _from_shards(saved: SavedState, model: nn.Module, optimizer: Optimizer | None) -> None:
    try:
        found = ShardRestorer(
            NamedParameters(model, optimizer), saved.files, saved.index, saved.other_trees
        )
    except (LookupError, TypeError, AttributeError) as odd:
        raise DamagedTreeError(f"the saved state is damaged: {odd!r}") from odd
    sharded.load(saved.path, saved.index, found.wanted)
    object_state.load_module(model, found.model)
    if optimizer is not None:
        _need(saved, found.optimizer)
        optimizer_state.load(optimizer, found.optimizer or {})


def _model_from_plain(saved: SavedState, model: nn.Module) -> None:
    """Shards are cut out of the whole tensors; nothing is sent between ranks."""
    values, now = saved.model, object_state.module_state(model)
    for name, other in _tied(saved, model).items():
        values.also(name.removeprefix("model."), other)
    if not object_state.is_sharded(model):
        object_state.load_module(model, values)
        return
    index = _index({each.key: _whole(each) for each in values.on_disk.values()})
    wanted = {
        name: TensorToFill(each.key, now[name])
        for name, each in values.on_disk.items()
        if name in now
    }
    sharded.load(saved.path, index, wanted)
    others = {name: values[name] for name in values if name not in values.on_disk}
    object_state.load_module(model, {**{name: now[name] for name in wanted}, **others})


def _whole(each: TensorOnDisk) -> SavedTensor:
    return SavedTensor(dtype_name(each.dtype), each.shape, layout=0)


def _index(tensors: dict[str, SavedTensor]) -> ShardIndex:
    """As if rank 0 alone had held all of them."""
    return ShardIndex(tensors, [held_by([0])])


def _optimizer_from_plain(saved: SavedState, model: nn.Module, optimizer: Optimizer) -> None:
    found = saved.optimizer_on_disk
    _need(saved, found)
    assert found is not None
    if saved.parameter_groups is not None:
        now = NamedParameters(model, optimizer).groups()
        found = optimizer_state.in_order(found, saved.parameter_groups, now)
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    numbers = [number for group in found["param_groups"] for number in group["params"]]
    if len(numbers) != len(parameters):
        raise ConfigError(f"the optimizer in {saved.path} has {len(numbers)} parameters, this one "
                          f"has {len(parameters)}")  # fmt: skip
    parameter_of = dict(zip(numbers, parameters, strict=True))
    _refuse_other_shapes(saved, found["state"], parameter_of)
    index: dict[str, SavedTensor] = {}
    wanted: dict[str, TensorToFill] = {}

    def make(value: Any, parameter: torch.Tensor) -> Any:
        if not isinstance(value, TensorOnDisk) or not hasattr(parameter, "device_mesh"):
            return read_all(value)
        index[value.key] = _whole(value)
        tensor = empty_like_parameter(
            index[value.key], parameter, parameter.device, whole=value.shape == ()
        )
        wanted[value.key] = TensorToFill(value.key, tensor)
        return tensor

    state = {
        number: {key: make(value, parameter_of[number]) for key, value in values.items()}
        for number, values in found["state"].items()
    }
    sharded.load(saved.path, _index(index), wanted)
    optimizer_state.load(optimizer, {**read_all({**found, "state": {}}), "state": state})


def _refuse_other_shapes(
    saved: SavedState, state: Mapping[int, Any], parameter_of: Mapping[int, torch.Tensor]
) -> None:
    """torch takes any shape; what is kept for each value of a parameter must have its shape."""
    for number, values in state.items():
        for key in ("exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg"):
            value = values.get(key) if isinstance(values, dict) else None
            if not isinstance(value, TensorOnDisk) or number not in parameter_of:
                continue
            shape = tuple(parameter_of[number].shape)
            if value.shape != shape and len(value.shape) == len(shape):
                raise ConfigError(
                    f"{saved.path} does not fit this optimizer: {key} of parameter {number} has "
                    f"{list(value.shape)}, the parameter {list(shape)}"
                )


def _need(saved: SavedState, found: object) -> None:
    if found is None:
        raise ConfigError(f"{saved.path} holds no optimizer")
