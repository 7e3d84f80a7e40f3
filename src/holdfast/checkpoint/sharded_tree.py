"""A sharded model and its optimizer <-> a typed tree in which shards are names of pieces.

A DTensor is a piece of something larger, and so is whatever all ranks hold alike: a parameter
that is not sharded, the step count of an optimizer. Other plain tensors (the running statistics
of a BatchNorm) differ from rank to rank, and each rank keeps its own.

torch's get_optimizer_state_dict is not used: where there is no state yet it makes a step of the
optimizer to have some.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Set
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor import empty as empty_dtensor
from torch.optim import Optimizer

from holdfast.checkpoint import object_state, tree
from holdfast.checkpoint.dtensor_layout import local_part
from holdfast.checkpoint.loading import Fill
from holdfast.checkpoint.rank_files import RankFiles
from holdfast.checkpoint.saved_trees import SavedTrees
from holdfast.checkpoint.sharded_index import SavedTensor, ShardIndex
from holdfast.checkpoint.tensors import (
    TensorDecoder,
    TensorEncoder,
    cannot_be_written,
    dtype_name,
    named_dtype,
)
from holdfast.checkpoint.tree import DamagedTreeError, Node, Path, place
from holdfast.errors import ConfigError


class TensorToFill(NamedTuple):
    """A tensor to be filled from the pieces of a saved one."""

    saved: str
    tensor: torch.Tensor
    fresh: bool = False
    """made for it: nothing of the job uses its memory yet"""


class NamedParameters:
    """A model, an optimizer and other things with DTensors, with the names of their parameters."""

    def __init__(
        self,
        model: nn.Module | None,
        optimizer: Optimizer | None,
        others: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.optimizer, self.others = model, optimizer, others or {}
        self._first_name: dict[torch.Tensor, str] = {}
        for name, parameter in (object_state.parameter_names(model) if model else {}).items():
            self._first_name.setdefault(parameter, name)
        for other, module in self.others.items():
            if isinstance(module, nn.Module):
                for name, parameter in object_state.parameter_names(module).items():
                    self._first_name.setdefault(parameter, f"{other}/{name}")

    def groups(self, optimizer: Optimizer | None = None) -> list[list[str]]:
        """The names in each group of the optimizer. One that is in no module has a number."""
        asked = optimizer or self.optimizer
        found = asked.param_groups if asked else []
        return [
            [self._first_name.get(one, _numbered(g, i)) for i, one in enumerate(group["params"])]
            for g, group in enumerate(found)
        ]

    def refuse_unnamed(self) -> None:
        """Its values would not be saved, and its momentum be taken for another parameter's."""
        optimizers = [self.optimizer, *self.others.values()]
        for optimizer in (each for each in optimizers if isinstance(each, Optimizer)):
            self._refuse_unnamed_in(optimizer)

    def _refuse_unnamed_in(self, optimizer: Optimizer) -> None:
        for g, group in enumerate(optimizer.param_groups):
            for i, one in enumerate(group["params"]):
                if one not in self._first_name:
                    raise ConfigError(
                        f"parameter {i} of the optimizer's group {g} ({list(one.shape)}) is in no "
                        "module of the State: its values would not be saved",
                        hint="give the State every module that the optimizer trains: "
                        "State(model=…, optimizer=…, head=head)",
                    )


def _numbered(group: int, number: int) -> str:
    return f"group {group}.{number}"


# --- state -> tree -----------------------------------------------------------------------------


class ShardCollector:
    """Encodes everything once; `pieces` and `own` are the tensors that it met."""

    def __init__(self, named: NamedParameters, per_rank: Set[str] = frozenset()) -> None:
        self._named, self._gather, self._per_rank = named, TensorEncoder(), per_rank
        self.pieces: dict[str, torch.Tensor] = {}
        self.local: dict[str, torch.Tensor] = {}
        """this rank's part of each piece"""
        self.weights: list[str] = []
        """pieces of modules"""
        self.own = self._gather.tensors
        self.node: dict[str, Node] = {}
        if named.model is not None:
            self.node["model"] = self._module("model", named.model)
        if named.optimizer is not None:
            self.node["optimizer"] = self._optimizer("optimizer", named.optimizer)
        if named.others:
            self.node["others"] = {name: self._other(name) for name in named.others}

    def _module(self, called: str, module: nn.Module) -> Node:
        parameters = object_state.parameter_names(module)
        first_name: dict[torch.Tensor, str] = {}
        for name, parameter in parameters.items():
            first_name.setdefault(parameter, name)

        def leaf(value: object, path: Path) -> Node | None:
            name = str(path[-1])
            if len(path) == 2 and (isinstance(value, DTensor) or name in parameters):
                tied = first_name[parameters[name]] if name in parameters else name
                self.weights.append(f"{called}.{tied}")
                return self._piece(value, (called, tied))
            return self._gather.encode(value, path)

        return tree.encode(object_state.module_state(module), leaf, (called,))

    def _optimizer(self, called: str, optimizer: Optimizer) -> Node:
        state, names = optimizer.state_dict(), self._named.groups(optimizer)
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        flat = [name for group in names for name in group]
        groups = [
            {**group, "params": mine}
            for group, mine in zip(state["param_groups"], names, strict=True)
        ]
        return {
            "groups": tree.encode(groups, self._gather.encode, (called, "groups")),
            "state": {
                flat[number]: tree.encode(
                    values, self._of_parameter(parameters[number]), (called, flat[number])
                )
                for number, values in state["state"].items()
            },
        }

    def _of_parameter(self, parameter: torch.Tensor) -> tree.EncodeLeaf:
        def leaf(value: object, path: Path) -> Node | None:
            if not isinstance(value, torch.Tensor):
                return self._gather.encode(value, path)
            is_plain = isinstance(parameter, DTensor) and not isinstance(value, DTensor)
            if is_plain and value.numel() != 1 and path[0] not in self._per_rank:
                raise ConfigError(
                    f"{place(path)} is a plain tensor of {list(value.shape)} for a parameter "
                    "that is sharded: ranks may share it or not, and nothing says which",
                    hint="use an optimizer that makes its state with zeros_like(parameter)",
                )
            return self._piece(value, path)

        return leaf

    def _other(self, name: str) -> Node:
        """An average of the weights, a second model: a module, or anything that holds DTensors."""
        value = self._named.others[name]
        if isinstance(value, nn.Module):
            return self._module(name, value)
        if isinstance(value, Optimizer):
            return self._optimizer(name, value)
        held = object_state.state_of(value) if object_state.has_state(value) else value

        def leaf(value: object, path: Path) -> Node | None:
            is_shared = isinstance(value, DTensor)
            return self._piece(value, path) if is_shared else self._gather.encode(value, path)

        return tree.encode(held, leaf, (name,))

    def _piece(self, value: Any, path: Path) -> Node:
        local = value.to_local() if isinstance(value, DTensor) else value
        if problem := cannot_be_written(local):
            raise ConfigError(f"{place(path)} is {problem}")
        name = ".".join(str(key) for key in path)
        body: dict[str, Node] = {"name": name}
        if not isinstance(value, DTensor):
            body["whole"] = True
        if local.device.type != "cpu":
            body["on"] = local.device.type
        if path[0] in self._per_rank:
            stored = self._gather.encode(local, path)
            return {"local": {**body, "size": list(value.shape), "stored": stored,
                              "dtype": dtype_name(value.dtype)}}  # fmt: skip
        if self.pieces.setdefault(name, value) is not value:
            self._refuse_other(name, local)
        self.local[name] = local
        return {"piece": body}

    def _refuse_other(self, name: str, local: torch.Tensor) -> None:
        """A tied weight is met under each of its names, and is one tensor."""
        if self.local[name].data_ptr() != local.data_ptr():
            raise ConfigError(f"two tensors of the state are called {name}: rename one of them")


# --- tree -> state -----------------------------------------------------------------------------


class ShardRestorer:
    """The state as it was saved, with empty tensors for all pieces; `wanted` is to fill them.

    The pieces of the model are its own tensors, so nothing is needed twice. `elsewhere` reads the
    trees of ranks that had other parameters, where those of this rank's own are not enough.
    """

    def __init__(
        self,
        named: NamedParameters,
        files: RankFiles,
        index: ShardIndex,
        elsewhere: Callable[[], list[RankFiles]] | None = None,
    ) -> None:
        self._named, self._index = named, index
        self._trees = SavedTrees(files, elsewhere or (list))
        self.wanted: dict[str, TensorToFill] = {}
        self.copies: list[Fill] = []
        """this rank's own, where each saved what it had"""
        self.model: OrderedDict[str, Any] = OrderedDict()
        if named.model is not None:
            self.model = self._module(("model",), named.model)
        self.optimizer: dict[str, Any] | None = None
        if named.optimizer is not None and self._trees.has("optimizer"):
            self.optimizer = self._optimizer(("optimizer",), named.optimizer)
        self.others = {
            name: self._other(name) for name in named.others if self._trees.has("others", name)
        }

    def _module(self, path: tuple[str, ...], module: nn.Module) -> OrderedDict[str, Any]:
        called, now = path[-1], object_state.module_state(module)
        entries, metadata = self._trees.entries(path, now.keys())
        found: OrderedDict[str, Any] = OrderedDict()
        for name, (node, files) in entries.items():
            kind, body = _kind(node)
            if kind in ("piece", "local") and name in now:
                object_state.refuse_meta(name, now[name])
                found[name] = now[name]
                if kind == "piece":
                    self.wanted[f"{called}.{name}"] = TensorToFill(body["name"], now[name])
                else:
                    self._copy(body, files, now[name])
            else:
                found[name] = _decode(node, files, keep_mapped=True)
        if metadata is not None:
            found._metadata = tree.decode(metadata, TensorDecoder(_no_tensor).decode)  # type: ignore[attr-defined]  # noqa: SLF001
        return found

    def _optimizer(self, path: tuple[str, ...], optimizer: Optimizer) -> dict[str, Any]:
        names = self._named.groups(optimizer)
        saved = self._trees.optimizer(path, names)
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        state: dict[int, Any] = {}
        groups: list[dict[str, Any]] = []
        number = 0
        for (options, files), mine in zip(saved.groups, names, strict=True):
            group = _decode(options, files)
            if "param_names" in group:
                group["param_names"] = optimizer.param_groups[len(groups)].get("param_names", mine)
            groups.append(group | {"params": list(range(number, number + len(mine)))})
            for name in mine:
                if name in saved.state:
                    node, where = saved.state[name]
                    state[number] = self._parameter_state(node, where, parameters[number])
                number += 1
        return {"state": state, "param_groups": groups}

    def _parameter_state(self, node: Node, files: RankFiles, parameter: torch.Tensor) -> Any:
        def make(kind: str, body: Any) -> torch.Tensor:
            name, on = body["name"], body.get("on", "cpu")
            device = parameter.device if on != "cpu" else torch.device("cpu")
            saved = (
                self._index[name]
                if kind == "piece"
                else SavedTensor(body["dtype"], tuple(body["size"]), 0)
            )
            found = empty_like_parameter(saved, parameter, device, whole=body.get("whole", False))
            if kind == "piece":
                self.wanted[name] = TensorToFill(name, found, fresh=True)
            else:
                self._copy(body, files, found, fresh=True)
            return found

        return _decode(node, files, make)

    def _other(self, name: str) -> Any:
        value = self._named.others[name]
        if isinstance(value, nn.Module):
            return self._module(("others", name), value)
        if isinstance(value, Optimizer):
            return self._optimizer(("others", name), value)
        # What it has now shows how each of its tensors is divided.
        now = ShardCollector(NamedParameters(None, None, {name: value})).pieces

        def make(kind: str, body: Any) -> torch.Tensor:
            tensor = now.get(body["name"])
            if tensor is None:
                raise ConfigError(f"{body['name']} is in the checkpoint, but not in this state",
                                  hint=f"make all of {name} before resume()")  # fmt: skip
            if kind == "piece":
                self.wanted[body["name"]] = TensorToFill(body["name"], tensor)
            else:
                self._copy(body, self._trees.own, tensor)
            return tensor

        return _decode(self._trees.node("others", name), self._trees.own, make)

    def _copy(
        self, body: Any, files: RankFiles, target: torch.Tensor, *, fresh: bool = False
    ) -> None:
        """What this rank had saved for itself."""
        source = _decode(body["stored"], files, keep_mapped=True)
        local = local_part(target)
        if tuple(body["size"]) != tuple(target.shape) or source.shape != local.shape:
            raise ConfigError(
                f"{body['name']}: this rank saved {list(source.shape)} of {body['size']}, and has "
                f"{list(local.shape)} of {list(target.shape)} now"
            )
        self.copies.append(Fill(local, source, fresh))


MakeTensor = Callable[[str, Any], torch.Tensor]


def _decode(
    node: Node, files: RankFiles, make: MakeTensor | None = None, *, keep_mapped: bool = False
) -> Any:
    fetch = files.decoder(keep_mapped=keep_mapped)

    def leaf(kind: str, body: Node) -> object:
        is_shard = kind in ("piece", "local") and make is not None
        return make(kind, body) if is_shard and make else fetch.decode(kind, body)

    return tree.decode(node, leaf)


def _kind(node: Node) -> tuple[str, Any]:
    if isinstance(node, dict) and len(node) == 1:
        [(kind, body)] = node.items()
        return kind, body
    return "", None


def _no_tensor(name: str) -> torch.Tensor:
    raise DamagedTreeError(f"a tensor {name!r:.80} among the versions of modules")


def empty_like_parameter(
    saved: SavedTensor, parameter: torch.Tensor, device: torch.device, *, whole: bool
) -> torch.Tensor:
    """As the optimizer makes it: like its parameter, or one that all ranks hold whole."""
    dtype = named_dtype(saved.dtype)
    if whole or not isinstance(parameter, DTensor):
        return torch.empty(saved.size, dtype=dtype, device=device)
    if saved.size == tuple(parameter.shape):
        return torch.empty_like(parameter.detach(), dtype=dtype)
    everywhere = [Replicate()] * parameter.device_mesh.ndim
    return empty_dtensor(
        *saved.size, dtype=dtype, device_mesh=parameter.device_mesh, placements=everywhere
    )
