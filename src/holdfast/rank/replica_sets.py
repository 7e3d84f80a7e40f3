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
from collections.abc import Iterable
from typing import Any, NamedTuple

from holdfast.rank import optimizer_calls

SAFE_HOOKS = frozenset({"allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"})
"""communication hooks of DDP (torch's default_hooks.py) after which all ranks have one gradient"""
SHARDS = "FSDP shards are not replicas: each rank holds other parameters"
_DDP = "torch.nn.parallel.distributed", "DistributedDataParallel"
_FSDP2 = "torch.distributed.fsdp._fully_shard._fsdp_param_group", "FSDPParamGroup"
_FSDP1 = "torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"


class ReplicaSet(NamedTuple):
    ranks: tuple[int, ...]
    """that hold the same, by torch's numbers"""
    tensors: tuple[tuple[str, Any], ...]
    """what this rank holds, with its name; of two models alike, a name twice"""
    series: int = 0
    """which optimizer steps it, by a number that all ranks have for it"""


class _Held(NamedTuple):
    """What one wrapper holds."""

    ranks: tuple[int, ...] = ()
    tensors: tuple[tuple[str, Any], ...] = ()
    why: str = ""
    """it is not comparable"""


class ReplicaSets:
    """Remembers the wrappers of a process between two looks; keeps none of them alive."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._wrappers: weakref.WeakKeyDictionary[Any, weakref.ref[Any] | None]
        self._wrappers = weakref.WeakKeyDictionary()
        """and the optimizer of each: the first that steps any of its parameters"""
        self._series: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """those optimizers, numbered as they come: in the order of the script, on all ranks"""
        self._next = 0

    def of(self, optimizer: Any) -> tuple[list[ReplicaSet], str]:
        """What this optimizer steps. And why there is nothing to compare in the whole process,
        where there is not."""
        if optimizer not in self._optimizers:  # and perhaps a model that is new as well
            self._optimizers.add(optimizer)
            self._look_for_wrappers()
        shared: dict[tuple[int, ...], list[tuple[str, Any]]] = {}
        why = "" if self._wrappers else "no DistributedDataParallel or HSDP module of torch is used"
        for wrapper in list(self._wrappers):
            if not self._belongs(wrapper, optimizer):
                continue
            found = self._held(wrapper)
            why = found.why or why
            if len(found.ranks) > 1:
                shared.setdefault(found.ranks, []).extend(found.tensors)
        if not why and not any(self._wrappers.values()) and optimizer_calls.taken(optimizer):
            why = "no optimizer of torch steps the parameters of the wrapped model itself"
        series = self._series.get(optimizer, 0)
        return [ReplicaSet(ranks, tuple(held), series) for ranks, held in shared.items()], why

    def _look_for_wrappers(self) -> None:
        """Among all objects of Python, which takes some 20 ms. To notice each when it is made would
        put a frame of ours into tracebacks of the script."""
        kinds: set[type] = set()
        for name in (_DDP, _FSDP2, _FSDP1):
            kinds |= _with_subclasses(_loaded(name))
        # By type(): an isinstance() may run code of whatever object it is asked about.
        for one in gc.get_objects():
            if type(one) in kinds:
                self._wrappers.setdefault(one, None)

    def _belongs(self, wrapper: Any, optimizer: Any) -> bool:
        owner = self._wrappers[wrapper]
        if owner is None or owner() is None:
            stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
            if stepped.isdisjoint(map(id, _parameters(wrapper))):
                return False
            self._wrappers[wrapper] = owner = weakref.ref(optimizer)
            if optimizer not in self._series:
                self._series[optimizer], self._next = self._next, self._next + 1
        return owner() is optimizer

    def _held(self, wrapper: Any) -> _Held:
        kind = type(wrapper)
        if _is(kind, _DDP):
            return self._in_ddp(wrapper)
        return self._in_fsdp2(wrapper) if _is(kind, _FSDP2) else self._in_fsdp1(wrapper)

    def _in_ddp(self, ddp: Any) -> _Held:
        hooks = [getattr(hook, "__name__", "?") for hook, _ in getattr(ddp, "_comm_hooks", ())]
        if odd := sorted(set(hooks) - SAFE_HOOKS):
            return _Held(why=f"the communication hook {odd[0]} may let replicas differ")
        found = [
            (name, parameter)
            for name, parameter in ddp.module.named_parameters()
            if parameter.requires_grad and name not in ddp.parameters_to_ignore
        ]
        return _Held(self._ranks(ddp.process_group), self._plain(found))

    def _in_fsdp2(self, group: Any) -> _Held:
        replicas = getattr(group.mesh_info, "replicate_process_group", None)
        if replicas is None:
            return _Held(why=SHARDS)
        found = [
            (one._param_fqn or str(number), one.sharded_param)  # noqa: SLF001
            for number, one in enumerate(group.fsdp_params)
            if one.sharded_param.requires_grad
        ]
        return _Held(self._ranks(replicas), self._plain(found))

    def _in_fsdp1(self, module: Any) -> _Held:
        flat, strategy = module._handle.flat_param, module.sharding_strategy.name  # noqa: SLF001
        if not flat.requires_grad:
            return _Held()
        if strategy == "NO_SHARD":
            replicas, held = module.process_group, flat
        elif "HYBRID" in strategy:
            # Its data is the whole of it during a forward pass.
            replicas, held = module._inter_node_pg, getattr(flat, "_local_shard", flat)  # noqa: SLF001
        else:
            return _Held(why=SHARDS)
        if module._comm_hook is not None:  # noqa: SLF001
            return _Held(why="a communication hook of FSDP may let replicas differ")
        name = f"{flat._fqns[0]} and others"  # noqa: SLF001
        return _Held(self._ranks(replicas), self._plain([(name, held)]))

    def _ranks(self, group: Any) -> tuple[int, ...]:
        return tuple(self._torch.distributed.get_process_group_ranks(group))

    def _plain(self, named: Iterable[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
        """What this rank holds of each; a DTensor's own methods may communicate."""
        local = [(name, getattr(one, "_local_tensor", one).detach()) for name, one in named]
        return tuple(
            (name, held)
            for name, held in local
            if type(held) is self._torch.Tensor and held.device.type in ("cpu", "cuda")
            if held.numel()
        )


def _parameters(wrapper: Any) -> Iterable[Any]:
    """As an optimizer holds them."""
    if _is(type(wrapper), _FSDP2):
        return [one.sharded_param for one in wrapper.fsdp_params]
    if _is(type(wrapper), _DDP):
        return wrapper.module.parameters()  # type: ignore[no-any-return]
    if wrapper._handle is None:  # noqa: SLF001
        return ()
    flat = wrapper._handle.flat_param  # noqa: SLF001
    return (flat, *(flat._params or ()))  # noqa: SLF001


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
