"""A sharded model and its optimizer <-> a typed tree in which shards are names of pieces.

A DTensor is a piece of something larger, and so is whatever all ranks hold alike: a parameter
that is not sharded, the step count of an optimizer. Other plain tensors (the running statistics
of a BatchNorm) differ from rank to rank, and each rank keeps its own.

torch's get_optimizer_state_dict is not used: where there is no state yet it makes a step of the
optimizer to have some.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor import empty as empty_dtensor

from holdfast.checkpoint import object_state, tree
from holdfast.checkpoint.rank_files import RankFiles
from holdfast.checkpoint.sharded_plan import SavedTensor, ShardIndex
from holdfast.checkpoint.tensors import TensorDecoder, TensorEncoder, cannot_be_written, named_dtype
from holdfast.checkpoint.tree import DamagedTreeError, Node, Path, place
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from torch.optim import Optimizer


class TensorToFill(NamedTuple):
    """A tensor to be filled from the pieces of a saved one."""

    saved: str
    tensor: torch.Tensor


class NamedParameters:
    """A model and an optimizer with the names of their parameters."""

    def __init__(self, model: nn.Module, optimizer: Optimizer | None) -> None:
        self.model, self.optimizer = model, optimizer
        self.parameters = object_state.parameter_names(model)
        self.first_name: dict[nn.Parameter, str] = {}
        for name, parameter in self.parameters.items():
            self.first_name.setdefault(parameter, name)

    def groups(self) -> list[list[str]]:
        """The names in each group of the optimizer. One that is not the model's has a number."""
        found = self.optimizer.param_groups if self.optimizer else []
        return [
            [self.first_name.get(one, f"group {g}.{i}") for i, one in enumerate(group["params"])]
            for g, group in enumerate(found)
        ]


# --- state -> tree -----------------------------------------------------------------------------


class ShardCollector:
    """Encodes everything once; `pieces` and `own` are the tensors that it met."""

    def __init__(self, named: NamedParameters) -> None:
        self._named, self._gather = named, TensorEncoder()
        self.pieces: dict[str, torch.Tensor] = {}
        self.local: dict[str, torch.Tensor] = {}
        """this rank's part of each piece"""
        self.own = self._gather.tensors
        self.node: dict[str, Node] = {"model": self._model()}
        if named.optimizer is not None:
            self.node["optimizer"] = self._optimizer(named.optimizer)

    def _model(self) -> Node:
        parameters, first_name = self._named.parameters, self._named.first_name

        def leaf(value: object, path: Path) -> Node | None:
            name = str(path[-1])
            if len(path) == 2 and (isinstance(value, DTensor) or name in parameters):
                tied = first_name[parameters[name]] if name in parameters else name
                return self._piece(value, (*path[:-1], tied))
            return self._gather.encode(value, path)

        return tree.encode(object_state.module_state(self._named.model), leaf, ("model",))

    def _optimizer(self, optimizer: Optimizer) -> Node:
        state, names = optimizer.state_dict(), self._named.groups()
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        flat = [name for group in names for name in group]
        groups = [
            {**group, "params": mine}
            for group, mine in zip(state["param_groups"], names, strict=True)
        ]
        return {
            "groups": tree.encode(groups, self._gather.encode, ("optimizer", "groups")),
            "state": {
                flat[number]: tree.encode(
                    values, self._of_parameter(parameters[number]), ("optimizer", flat[number])
                )
                for number, values in state["state"].items()
            },
        }

    def _of_parameter(self, parameter: torch.Tensor) -> tree.EncodeLeaf:
        def leaf(value: object, path: Path) -> Node | None:
            if not isinstance(value, torch.Tensor):
                return self._gather.encode(value, path)
            is_plain = isinstance(parameter, DTensor) and not isinstance(value, DTensor)
            if is_plain and value.numel() != 1:
                raise ConfigError(
                    f"{place(path)} is a plain tensor of {list(value.shape)} for a parameter "
                    "that is sharded: ranks may share it or not, and nothing says which",
                    hint="use an optimizer that makes its state with zeros_like(parameter)",
                )
            return self._piece(value, path)

        return leaf

    def _piece(self, value: Any, path: Path) -> Node:
        local = value.to_local() if isinstance(value, DTensor) else value
        if problem := cannot_be_written(local):
            raise ConfigError(f"{place(path)} is {problem}")
        name = ".".join(str(key) for key in path)
        self.pieces[name], self.local[name] = value, local
        body: dict[str, Node] = {"name": name}
        if not isinstance(value, DTensor):
            body["whole"] = True
        if local.device.type != "cpu":
            body["on"] = local.device.type
        return {"piece": body}


# --- tree -> state -----------------------------------------------------------------------------


class ShardRestorer:
    """The state as it was saved, with empty tensors for all pieces; `wanted` is to fill them.

    The pieces of the model are its own tensors, so nothing is needed twice.
    """

    def __init__(self, named: NamedParameters, files: RankFiles, index: ShardIndex) -> None:
        self._named, self._files, self._index = named, files, index
        self.wanted: dict[str, TensorToFill] = {}
        part = files.part("sharded")
        self.model = self._model(part.get("model"))
        self.optimizer: dict[str, Any] | None = None
        if named.optimizer is not None and "optimizer" in part:
            self.optimizer = self._optimizer(named.optimizer, part["optimizer"])

    def _model(self, node: Node) -> OrderedDict[str, Any]:
        saved = self._decode(node, lambda body: body["name"], keep_mapped=True)
        now = object_state.module_state(self._named.model)
        for name, key in _pieces(node).items():
            if name in now:
                _refuse_meta(name, now[name])
                self.wanted[f"model.{name}"] = TensorToFill(key, now[name])
                saved[name] = now[name]
        return saved  # type: ignore[no-any-return]

    def _optimizer(self, optimizer: Optimizer, node: Node) -> dict[str, Any]:
        groups = self._decode(node["groups"])
        names = self._named.groups()
        if [group["params"] for group in groups] != names:
            raise ConfigError("the optimizer's groups hold other parameters than when it was saved")
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        state, number = {}, 0
        for group, mine in zip(groups, names, strict=True):
            group["params"] = list(range(number, number + len(mine)))
            for name in mine:
                if name in node["state"]:
                    make = self._empty_for(parameters[number])
                    state[number] = self._decode(node["state"][name], make)
                number += 1
        return {"state": state, "param_groups": groups}

    def _empty_for(self, parameter: torch.Tensor) -> Callable[[Any], torch.Tensor]:
        def make(body: Any) -> torch.Tensor:
            name, on = body["name"], body.get("on", "cpu")
            device = parameter.device if on != "cpu" else torch.device("cpu")
            found = empty_like_parameter(
                self._index[name], parameter, device, whole=body.get("whole", False)
            )
            self.wanted[name] = TensorToFill(name, found)
            return found

        return make

    def _decode(
        self, node: Node, piece: Callable[[Any], Any] | None = None, *, keep_mapped: bool = False
    ) -> Any:
        fetch = TensorDecoder(self._files.tensor, keep_mapped=keep_mapped)

        def leaf(kind: str, body: Node) -> object:
            return piece(body) if kind == "piece" and piece else fetch.decode(kind, body)

        return tree.decode(node, leaf)


def _pieces(node: Node) -> dict[str, str]:
    """Name in the model -> name of the piece."""
    pairs = node["ordered"][0]
    return {key: value["piece"]["name"] for key, value in pairs
            if isinstance(value, dict) and "piece" in value}  # fmt: skip


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


def _refuse_meta(name: str, tensor: torch.Tensor) -> None:
    if tensor.is_meta:
        raise ConfigError(f"{name} is on the meta device: it has no memory to load into",
                         hint='call model.to_empty(device="cuda") before resume()')  # fmt: skip


def index_of(files: RankFiles) -> Mapping[str, Any]:
    found = files.part("sharded").get("index")
    if not isinstance(found, dict):
        raise DamagedTreeError("the saved state is damaged: it has no index of its pieces")
    return found
