"""The objects of a State: modules, generators and others; their state, and back again.

For optimizers see optimizer_state.py.

DistributedDataParallel adds 'module.' to every name and torch.compile '_orig_mod.'. Both are
dropped when saving and put back when loading, so a run may resume with either, or without.
"""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from holdfast.checkpoint import generators, optimizer_state
from holdfast.checkpoint.optimizer_state import ParameterNames, described
from holdfast.errors import ConfigError

_WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "OptimizedModule": "_orig_mod",
}
_REFUSED = {
    "FullyShardedDataParallel": "FSDP1 is not supported: use torch.distributed.fsdp.fully_shard",
}
_ONE_RANKS_PART = "ZeroRedundancyOptimizer"


def refuse_unknown(name: str, thing: object, *, per_rank: bool) -> None:
    """What looks complete on rank 0 but is not."""
    parts = thing.modules() if isinstance(thing, nn.Module) else [thing]
    for part in parts:
        for kind in type(part).__mro__:
            if kind.__name__ in _REFUSED:
                raise ConfigError(f"State({name}=…) holds a {kind.__name__}: "
                                 f"{_REFUSED[kind.__name__]}")  # fmt: skip
            if kind.__name__ == _ONE_RANKS_PART and not per_rank:
                raise ConfigError(
                    f"State({name}=…) is a {kind.__name__}, which keeps a part on each rank",
                    hint=f'let each rank save its own: State(…, per_rank=("{name}",))',
                )
    if isinstance(thing, nn.Module):
        _refuse_emptied(name, thing)


def _refuse_emptied(name: str, module: nn.Module) -> None:
    """DeepSpeed's ZeRO stage 3 takes the values out of the parameters between two steps."""
    own = list(module.parameters())
    is_deepspeed = any(hasattr(parameter, "ds_id") for parameter in own)
    if is_deepspeed or (own and not any(parameter.numel() for parameter in own)):
        what = "parameters partitioned by DeepSpeed" if is_deepspeed else "only empty parameters"
        raise ConfigError(
            f"State({name}=…) has {what}: their values are not in the module",
            hint="save with the library that holds them (DeepSpeed: engine.save_checkpoint), or "
            "shard with torch.distributed.fsdp.fully_shard",
        )


def is_sharded(thing: object) -> bool:
    """Does each rank hold only a part of it?"""
    library = sys.modules.get("torch.distributed.tensor")  # else none can exist
    if library is None:
        return False
    if isinstance(thing, nn.Module):
        reshard(thing)
        own: Iterable[object] = [*thing.parameters(), *thing.buffers()]
    elif isinstance(thing, Optimizer):
        own = [parameter for group in thing.param_groups for parameter in group["params"]]
    else:
        own = _leaves(state_of(thing) if has_state(thing) else thing)
    return any(isinstance(tensor, library.DTensor) for tensor in own)


def _leaves(value: object, deepest: int = 10) -> Iterator[object]:
    """What is in a nest of dicts and lists."""
    if not isinstance(value, dict | list | tuple):
        yield value
    elif deepest:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _leaves(each, deepest - 1)


def reshard(module: nn.Module) -> None:
    """A forward pass without a backward one, as in an evaluation, leaves parameters of FSDP2 whole:
    plain tensors, which are neither the optimizer's parameters nor what is to be saved."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    kind = getattr(fsdp, "FSDPModule", ())
    for part in module.modules():
        if isinstance(part, kind):
            part.reshard()


# --- modules -----------------------------------------------------------------------------------


def unwrap(module: nn.Module) -> nn.Module:
    """The user's own module."""
    while (inside := _WRAPPERS.get(type(module).__name__)) is not None:
        module = getattr(module, inside)
    return module


def module_state(module: nn.Module) -> OrderedDict[str, Any]:
    module = unwrap(module)
    state, added = module.state_dict(), _added(module)
    plain: OrderedDict[str, Any] = OrderedDict(
        (_without(name, added), value) for name, value in state.items()
    )
    metadata = getattr(state, "_metadata", {})
    plain._metadata = {  # type: ignore[attr-defined]  # noqa: SLF001 - torch reads it there
        _without(name, added): value for name, value in metadata.items()
    }
    return plain


def load_module(module: nn.Module, saved: Mapping[str, Any]) -> None:
    """Strict; the values are copied into the module's own tensors."""
    module = unwrap(module)
    now, added = module.state_dict(), _added(module)
    for name, value in now.items():
        if isinstance(value, torch.Tensor):
            refuse_meta(name, value)
    names, left = list(now), dict(saved)
    state: OrderedDict[str, Any] = OrderedDict(
        (name, left.pop(_without(name, added))) for name in names if _without(name, added) in left
    )
    state.update(left)  # torch names them as unexpected
    metadata = getattr(saved, "_metadata", {})
    paths = [name for name, _ in module.named_modules()]
    state._metadata = {  # type: ignore[attr-defined]  # noqa: SLF001
        path: metadata[_without(path, added)] for path in paths if _without(path, added) in metadata
    }
    module.load_state_dict(state, strict=True)


def refuse_meta(name: str, tensor: torch.Tensor) -> None:
    """torch would load nothing into it, and only warn."""
    if tensor.is_meta:
        raise ConfigError(f"{name} is on the meta device: it has no memory to load into",
                         hint='call model.to_empty(device="cuda") before resume()')  # fmt: skip


def parameter_names(module: nn.Module) -> dict[str, nn.Parameter]:
    """As in `module_state`; tied ones are there under each of their names."""
    module = unwrap(module)
    reshard(module)
    added = _added(module)
    named = module.named_parameters(remove_duplicate=False)
    return {_without(name, added): parameter for name, parameter in named}


def _added(module: nn.Module) -> frozenset[str]:
    """Paths of modules inside wrappers: 'layer._orig_mod' for a layer compiled by itself."""
    return frozenset(
        f"{path}.{inside}" if path else inside
        for path, part in module.named_modules()
        if (inside := _WRAPPERS.get(type(part).__name__)) is not None
    )


def _without(name: str, added: frozenset[str]) -> str:
    if not added:
        return name
    parts = name.split(".")
    return ".".join(part for i, part in enumerate(parts) if ".".join(parts[: i + 1]) not in added)


# --- what must be equal ------------------------------------------------------------------------


def structure(name: str, thing: object, names: ParameterNames) -> dict[str, str]:
    """Of a module or an optimizer; nothing for anything else."""
    if isinstance(thing, nn.Module):
        state = module_state(thing)
        tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
        return {f"{name}.{key}": described(value) for key, value in tensors.items()}
    if isinstance(thing, Optimizer):
        return optimizer_state.structure(name, thing, names)
    return {}


def fingerprint(structure: Mapping[str, str]) -> str:
    """Of names, shapes and types; their order is free."""
    lines = "".join(f"{name}\t{what}\n" for name, what in sorted(structure.items()))
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()


def first_differences(saved: Mapping[str, str], now: Mapping[str, str], most: int = 3) -> str:
    """'model.fc.weight: float32 [4, 3] then, float32 [5, 3] now; …', or '' if they are equal."""
    names: Iterable[str] = dict.fromkeys([*saved, *now])
    differing = [name for name in names if saved.get(name) != now.get(name)]
    said = [
        f"{name}: {saved.get(name, 'absent')} then, {now.get(name, 'absent')} now"
        for name in differing[:most]
    ]
    more = [f"{len(differing) - most} more"] if len(differing) > most else []
    return "; ".join(said + more)


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


def moved_like(value: Any, now: Any) -> Any:
    """A saved value, its tensors on the devices on which the script has them now: other
    accelerators than CUDA, several GPUs of one rank."""
    if isinstance(value, torch.Tensor) and isinstance(now, torch.Tensor):
        return value if now.is_meta else value.to(now.device)
    if type(value) is dict and isinstance(now, dict):
        return {key: moved_like(item, now.get(key)) for key, item in value.items()}
    is_row = type(value) in (list, tuple) and type(value) is type(now)
    if is_row and len(value) == len(now):
        return type(value)(map(moved_like, value, now))
    return value


def state_of(thing: Any) -> Any:
    if isinstance(thing, nn.Module):
        return module_state(thing)
    if isinstance(thing, Optimizer):
        return optimizer_state.state_of(thing)
    if generators.is_generator(thing):
        return generators.capture_one(thing)
    return thing.state_dict()


def load_state(thing: Any, saved: Any) -> None:
    if isinstance(thing, nn.Module):
        load_module(thing, saved)
    elif isinstance(thing, Optimizer):
        optimizer_state.load(thing, saved)
    elif generators.is_generator(thing):
        generators.restore_one(thing, saved)
    else:
        thing.load_state_dict(saved)
