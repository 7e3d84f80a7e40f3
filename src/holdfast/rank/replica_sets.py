"""Which parameters of this rank torch keeps equal on other ranks, and on which: its replicas.

DistributedDataParallel keeps all it trains equal in its process group. Of FSDP and HSDP a rank
holds shards: equal only to the same shard in the other replicas of the group that gradients are
all-reduced in. torch does not keep buffers, frozen parameters and copies (EMA) equal. What is not
known to be a replica is never compared.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

SAFE_HOOKS = frozenset({"allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"})
"""communication hooks of DDP (torch's default_hooks.py) after which all ranks have one gradient"""
_DDP = "torch.nn.parallel.distributed", "DistributedDataParallel"
_FSDP2 = "torch.distributed.fsdp._fully_shard._fsdp_param_group", "FSDPParamGroup"
_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"


class ReplicaSet(NamedTuple):
    ranks: tuple[int, ...]
    """that hold the same, by torch's numbers"""
    tensors: tuple[tuple[str, Any], ...]
    """what this rank holds, with its name; of two models alike, a name twice"""


class ReplicaSets:
    """Remembers the wrappers of a process between two looks; keeps none of them alive."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._wrappers: list[weakref.ref[Any]] = []

    def find(self, *, search: bool) -> tuple[list[ReplicaSet], str]:
        """And why there is nothing to compare, where there is not. `search`: there may be wrappers
        that are not known yet."""
        if search:
            self._look_for_wrappers()
        shared: dict[tuple[int, ...], list[tuple[str, Any]]] = {}
        why = ""
        for wrapper in filter(None, (ref() for ref in self._wrappers)):
            ranks, tensors, reason = self._of(wrapper)
            why = reason or why
            if len(ranks) > 1 and tensors:
                shared.setdefault(ranks, []).extend(tensors)
        if shared:
            return [ReplicaSet(ranks, tuple(tensors)) for ranks, tensors in shared.items()], ""
        return [], why or "no DistributedDataParallel or HSDP module of torch is in use"

    def _look_for_wrappers(self) -> None:
        """Among all objects of Python, which takes some 20 ms. To notice each when it is made would
        put a frame of ours into tracebacks of the script."""
        kinds: set[type] = set()
        for name in (_DDP, _FSDP2, _FSDP1):
            kinds |= _with_subclasses(_loaded(name))
        # By type(): an isinstance() may run code of whatever object it is asked about.
        self._wrappers = [weakref.ref(one) for one in gc.get_objects() if type(one) in kinds]

    def _of(self, wrapper: Any) -> tuple[tuple[int, ...], list[tuple[str, Any]], str]:
        kind = type(wrapper)
        if _is(kind, _DDP):
            return self._of_ddp(wrapper)
        return self._of_fsdp2(wrapper) if _is(kind, _FSDP2) else self._of_fsdp1(wrapper)

    def _of_ddp(self, ddp: Any) -> tuple[tuple[int, ...], list[tuple[str, Any]], str]:
        hooks = [getattr(hook, "__name__", "?") for hook, _ in getattr(ddp, "_comm_hooks", ())]
        if odd := sorted(set(hooks) - SAFE_HOOKS):
            return (), [], f"the communication hook {odd[0]} may let replicas differ"
        found = [
            (name, parameter)
            for name, parameter in ddp.module.named_parameters()
            if parameter.requires_grad and name not in ddp.parameters_to_ignore
        ]
        return self._ranks(ddp.process_group), list(self._plain(found)), ""

    def _of_fsdp2(self, group: Any) -> tuple[tuple[int, ...], list[tuple[str, Any]], str]:
        replicas = getattr(group.mesh_info, "replicate_process_group", None)
        if replicas is None:
            return (), [], "FSDP shards are not replicas: each rank holds other parameters"
        found = [
            (one._param_fqn or str(number), one.sharded_param)  # noqa: SLF001
            for number, one in enumerate(group.fsdp_params)
            if one.sharded_param.requires_grad
        ]
        return self._ranks(replicas), list(self._plain(found)), ""

    def _of_fsdp1(self, module: Any) -> tuple[tuple[int, ...], list[tuple[str, Any]], str]:
        handle = module._handle  # noqa: SLF001
        strategy = module.sharding_strategy.name
        if handle is None or not handle.flat_param.requires_grad:
            return (), [], ""
        if strategy == "NO_SHARD":
            replicas, held = module.process_group, handle.flat_param.detach()
        elif "HYBRID" in strategy:
            flat = handle.flat_param  # its data is the whole of it during a forward pass
            replicas, held = module._inter_node_pg, getattr(flat, "_local_shard", flat)  # noqa: SLF001
        else:
            return (), [], "FSDP shards are not replicas: each rank holds other parameters"
        if module._comm_hook is not None:  # noqa: SLF001
            return (), [], "a communication hook of FSDP may let replicas differ"
        name = f"{handle.flat_param._fqns[0]} and others"  # noqa: SLF001
        return self._ranks(replicas), list(self._plain([(name, held)])), ""

    def _ranks(self, group: Any) -> tuple[int, ...]:
        return tuple(self._torch.distributed.get_process_group_ranks(group))

    def _plain(self, named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """What this rank holds of each; a DTensor's own methods may communicate."""
        kinds = (self._torch.Tensor, self._torch.nn.Parameter)
        for name, parameter in named:
            held = getattr(parameter, "_local_tensor", parameter).detach()
            if type(held) in kinds and held.device.type in ("cpu", "cuda") and held.numel():
                yield name, held


def _loaded(kind: tuple[str, str]) -> type | None:
    module, name = kind
    return getattr(sys.modules.get(module), name, None)


def _with_subclasses(kind: type | None) -> set[type]:
    if kind is None:
        return set()
    return {kind}.union(*map(_with_subclasses, kind.__subclasses__()))


def _is(kind: type, name: tuple[str, str]) -> bool:
    wanted = _loaded(name)
    return wanted is not None and issubclass(kind, wanted)
