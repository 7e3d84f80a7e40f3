"""What one rank holds of the state that all ranks are to share: names, shapes and a few values.

Of each tensor some elements are looked at, on its device, and all of them fetched by one copy: with
10,000 tensors it takes a fraction of a second, once a run.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from holdfast.checkpoint import object_state, optimizer_state
from holdfast.checkpoint.state import State
from holdfast.checkpoint.tensors import cannot_be_written

SAMPLES = 8
"""elements of each tensor"""
_SUMMABLE = {torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32}
"""types that torch.cat and a conversion to float64 know on every device"""

Values = dict[str, tuple[float | None, ...]]
"""None: not a number, or infinite"""


class RankContents(msgspec.Struct, frozen=True, kw_only=True):
    """Names begin with the State's own: 'model.fc.weight', 'optimizer.model.fc.weight.exp_avg'."""

    structure: dict[str, str]
    """name -> type and shape, as in `State.structure`, and of the optimizers' own state"""
    values: Values
    """of parameters and optimizers, which replicas have in common"""
    loose: Values
    """of buffers and the like, which differ between healthy replicas"""
    optimizers: tuple[str, ...] = ()
    """the names of those in the State"""

    def summary(self) -> RankSummary:
        return RankSummary(
            structure=_digest(self.structure),
            values=_digest(self.values),
            loose=_digest(self.loose),
        )


class RankSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Digests: what is equal on two ranks has equal ones."""

    structure: str = ""
    values: str = ""
    loose: str = ""
    problem: str = ""
    """why this rank could not be looked at"""


def _digest(found: Mapping[str, object]) -> str:
    return hashlib.sha256(msgspec.json.encode(sorted(found.items()))).hexdigest()[:32]


@torch.no_grad()
def contents(state: State) -> RankContents:
    """Of this moment; waits for the GPU once."""
    shared = state.shared_objects()
    structure = {n: d for n, d in state.structure().items() if n.split(".", 1)[0] in shared}
    strict: dict[str, Any] = {}
    loose: dict[str, Any] = {}
    optimizers = [n for n, one in shared.items() if n == "optimizer" or isinstance(one, Optimizer)]
    for name, thing in shared.items():
        if isinstance(thing, nn.Module):
            _look_at_module(name, thing, strict, loose)
        elif isinstance(thing, Optimizer):
            strict |= _optimizer(name, thing, state.parameter_names())
        elif name == "optimizer":  # of another library
            strict |= _leaves(thing.state_dict(), name)
    structure |= {name: _described(value) for name, value in strict.items()}
    return RankContents(
        structure=structure,
        values=_sample(strict),
        loose=_sample(loose),
        optimizers=tuple(optimizers),
    )


def _look_at_module(
    name: str, module: nn.Module, strict: dict[str, Any], loose: dict[str, Any]
) -> None:
    parameters = object_state.parameter_names(module)
    strict |= {f"{name}.{key}": parameter for key, parameter in parameters.items()}
    if isinstance(module, DistributedDataParallel) and module.broadcast_buffers:
        return  # the next forward pass gives rank 0's to all: those are the ones that count
    others = {k: v for k, v in object_state.module_state(module).items() if k not in parameters}
    loose |= _leaves(others, name)


def _optimizer(
    name: str, optimizer: Optimizer, names: optimizer_state.ParameterNames
) -> dict[str, Any]:
    groups = optimizer_state.groups(optimizer, names)
    flat = [f"group {g}.{n}" if n.isdigit() else n for g, one in enumerate(groups) for n in one]
    saved = optimizer_state.state_of(optimizer)["state"]
    found: dict[str, Any] = {}
    for number, kept in saved.items():
        known = isinstance(number, int) and number < len(flat)
        found |= _leaves(kept, f"{name}.{flat[number] if known else number}")
    return found


def _leaves(value: object, path: str) -> dict[str, Any]:
    """Tensors and numbers anywhere in it; other things are not compared."""
    return dict(_walk(value, path, 20))


def _walk(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor | int | float):
        yield path, value
    elif depth and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, f"{path}.{key}", depth - 1)
    elif depth and isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _walk(item, f"{path}.{i}", depth - 1)


def _described(value: Any) -> str:
    return optimizer_state.described(value) if isinstance(value, torch.Tensor) else "number"


# --- values ------------------------------------------------------------------------------------


def _sample(found: Mapping[str, Any]) -> Values:
    numbers: Values = {
        n: (_finite(float(v)),) for n, v in found.items() if not isinstance(v, torch.Tensor)
    }
    tensors = {n: v for n, v in found.items() if isinstance(v, torch.Tensor)}
    by_kind: dict[tuple[object, ...], dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        if tensor.numel() and not cannot_be_written(tensor):  # else there is nothing to look at
            few = _few(tensor.detach())
            by_kind.setdefault((few.device, few.dtype), {})[name] = few
    for alike in by_kind.values():
        numbers |= _fetch(alike)
    return numbers


def _few(tensor: torch.Tensor) -> torch.Tensor:
    """Elements from its first to its last, without a copy of the rest."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    count = tensor.numel()
    apart = max(1, (count - 1) // (SAMPLES - 1))
    if tensor.is_contiguous() and not tensor.is_neg():
        few = tensor.as_strided((min(SAMPLES, count),), (apart,), tensor.storage_offset())
    else:
        places = torch.arange(min(SAMPLES, count), device=tensor.device) * apart
        few = torch.take(tensor, places)
    return few if few.dtype in _SUMMABLE else few.to(torch.float32)


def _fetch(alike: Mapping[str, torch.Tensor]) -> Values:
    values = torch.cat(list(alike.values())).to("cpu", torch.float64).tolist()
    found: Values = {}
    at = 0
    for name, few in alike.items():
        found[name] = tuple(map(_finite, values[at : at + few.numel()]))
        at += few.numel()
    return found


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
