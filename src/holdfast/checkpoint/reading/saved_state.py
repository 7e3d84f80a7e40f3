"""What a checkpoint holds, whole, in one process: tensors by name, read when they are asked for.

Sharded ones are put together from the pieces of all ranks. Nothing is copied where a tensor is in
one piece: it is mapped from its file, and changing it changes neither the file nor anything else.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from holdfast.analysis.checkpoints.manifest import Manifest
from holdfast.checkpoint import sharded, tree
from holdfast.checkpoint.rank_files import RankFiles
from holdfast.checkpoint.reading.whole_optimizer import merged
from holdfast.checkpoint.sharded_index import ShardIndex
from holdfast.checkpoint.sharded_tree import TensorToFill
from holdfast.checkpoint.state import GROUPS, OWN_STRUCTURE
from holdfast.checkpoint.tensors import TensorDecoder, dtype_name, named_dtype
from holdfast.checkpoint.tree import DamagedTreeError, Node
from holdfast.errors import ConfigError

PARTS = ("model", "optimizer")


@dataclass(frozen=True)
class TensorOnDisk:
    """A saved tensor that was not read yet."""

    key: str
    """equal for names that are one tensor (tied weights)"""
    dtype: torch.dtype
    shape: tuple[int, ...]
    read: Callable[[], torch.Tensor]

    @property
    def size(self) -> int:
        """bytes"""
        return torch.Size(self.shape).numel() * self.dtype.itemsize

    def raw(self) -> memoryview:
        return raw_bytes(self.read())

    def __str__(self) -> str:
        return f"{dtype_name(self.dtype)} {list(self.shape)}"


class SavedTensors(Mapping[str, Any]):
    """Name -> tensor, as a state dict; each is read when it is asked for.

    What a module's get_extra_state() gave is there as well, and is no tensor.
    """

    def __init__(self, found: Mapping[str, Any], metadata: Any = None) -> None:
        self.on_disk = {n: each for n, each in found.items() if isinstance(each, TensorOnDisk)}
        self._found = found
        self._metadata = metadata or {}
        """torch's load_state_dict looks for it: the versions of the modules"""

    def also(self, name: str, other: str) -> None:
        """A second name for a tensor."""
        self._found = {**self._found, name: self._found[other]}
        self.on_disk[name] = self.on_disk[other]

    def __getitem__(self, name: str) -> Any:
        return read_all(self._found[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """Its values in order; they must not change meanwhile."""
    flat = tensor.resolve_conj().resolve_neg().contiguous().reshape(-1)
    if not flat.numel():
        return memoryview(b"")
    return memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


def read_all(value: Any) -> Any:
    """The same nest of dicts and lists, with tensors."""
    if isinstance(value, TensorOnDisk):
        return value.read()
    if type(value) is dict or type(value) is OrderedDict:
        return type(value)((key, read_all(item)) for key, item in value.items())
    if type(value) is list or type(value) is tuple:
        return type(value)(read_all(item) for item in value)
    return value


class SavedState:
    """A checkpoint, opened for reading: what `holdfast.load` returns.

    As long as it is open (until `close()`, or the end of a `with` block, or of the process) no job
    removes the checkpoint.

    Attributes:
        path: the step's folder.
        step: optimizer steps done.
        epoch: as the script had set it.
        config: the configuration, every value as text.
        world_size: ranks that saved it.
        kind: "plain" or "sharded".
        notes: what was passed over, in sentences.
    """

    def __init__(
        self,
        path: str,
        manifest: Manifest,
        *,
        notes: tuple[str, ...] = (),
        rank: int | None = None,
    ) -> None:
        own = [name for name in PARTS if name in manifest.per_rank]
        if own and rank is None:
            raise ConfigError(
                f"{path}: each of its {manifest.world_size} ranks saved its own "
                f"{' and '.join(own)}",
                hint="say whose: holdfast.load(…, rank=0), or --rank 0",
            )
        rank = rank or 0
        self.path, self.manifest = path, manifest
        self._held = contextlib.ExitStack()
        self.step, self.epoch, self.world_size = manifest.step, manifest.epoch, manifest.world_size
        self.config, self.kind, self.notes = dict(manifest.config), manifest.kind, notes
        if not 0 <= rank < manifest.world_size:
            raise ConfigError(f"rank must be 0 to {manifest.world_size - 1}, got {rank}")
        self._first = RankFiles(path, 0)
        self._rank = rank
        self._files = RankFiles(path, rank) if rank else self._first
        self._shards: ShardIndex | None = None
        self._trees: list[RankFiles] | None = None

    @property
    def model(self) -> SavedTensors:
        """Names to tensors, as in the state dict of the model without its wrappers."""
        found = self._decoded("model")
        if found is None:
            raise ConfigError(f"{self.path} holds no model")
        whole = dict(found)
        for files in self.other_trees():
            node = files.part("sharded").get("model")
            for name, value in (_decode(node, files, self._piece) if node else {}).items():
                whole.setdefault(name, value)
        return SavedTensors(
            {**whole, **self._of_other_ranks(whole)}, getattr(found, "_metadata", None)
        )

    def other_trees(self) -> list[RankFiles]:
        """One of each kind that ranks had with other parameters: stages of a pipeline, experts.
        Not where each saved its own, which may have the same names."""
        if self._trees is None:
            ranks = self._first.part("sharded").get("trees", []) if self.kind == "sharded" else []
            wanted = [] if set(PARTS) & set(self.manifest.per_rank) else ranks
            self._trees = [RankFiles(self.path, int(r)) for r in wanted if int(r) != self._rank]
        return self._trees

    @property
    def of_one_rank(self) -> list[str]:
        """Tensors of a sharded model that every rank has for itself, such as the statistics of a
        batch norm: here are those of one rank."""
        if self.kind != "sharded" or self.world_size == 1:
            return []
        return [n for n, each in self.model.on_disk.items() if each.key not in self.index]

    def _of_other_ranks(self, found: Mapping[str, Any]) -> dict[str, TensorOnDisk]:
        """Parameters that none of these trees has: earlier releases did not say which there are."""
        if self.kind != "sharded":
            return {}
        known = {each.key for each in found.values() if isinstance(each, TensorOnDisk)}
        others = [key for key in self.index if key.startswith("model.") and key not in known]
        return {key.removeprefix("model."): self._piece({"name": key}) for key in others}

    @property
    def optimizer(self) -> dict[str, Any] | None:
        """As `optimizer.state_dict()`; of sharded ones with the names of parameters as keys."""
        found: dict[str, Any] | None = read_all(self.optimizer_on_disk)
        return found

    @property
    def optimizer_on_disk(self) -> dict[str, Any] | None:
        """The same, with tensors that are not read yet."""
        found: dict[str, Any] | None = self._decoded("optimizer")
        return found

    @property
    def extras(self) -> dict[str, Any]:
        """Everything else that all ranks share: scheduler, scaler, what the State had by name."""
        shared = self._first.part("shared")
        return {n: self._first.value(node) for n, node in shared.items() if n not in PARTS}

    def of_rank(self, rank: int) -> dict[str, Any]:
        """What one rank knew for itself: its data position, its generators, names in per_rank.

        Args:
            rank: of those that saved it.
        """
        files = self._first if rank == 0 else RankFiles(self.path, rank)
        return {n: files.value(node) for n, node in files.part("own").items() if n not in PARTS}

    def keep(self, held: contextlib.ExitStack) -> None:
        """What is to be let go when this is closed."""
        self._held = held

    def close(self) -> None:
        """Let it be removed; tensors that were read stay as they are."""
        self._held.close()

    def __enter__(self) -> SavedState:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- for load.py and the exports -----------------------------------------------------------

    @property
    def index(self) -> ShardIndex:
        """Where the pieces are; of sharded state only."""
        if self._shards is None:
            self._shards = sharded.read_index(self._first)
        return self._shards

    @property
    def files(self) -> RankFiles:
        """Of the rank whose view this is."""
        return self._files

    def structure(self) -> dict[str, str]:
        """Names, shapes and types of what all ranks share and of this rank's own."""
        own = self._files.part(OWN_STRUCTURE, object)  # the first release had none
        return {**self._first.part("structure"), **(own if isinstance(own, dict) else {})}

    @property
    def parameter_groups(self) -> list[list[str]] | None:
        """The names of the parameters in each group of the optimizer; None where not saved."""
        if self.kind == "sharded":
            found = self.optimizer_on_disk
            return None if found is None else [list(one["params"]) for one in found["param_groups"]]
        files = self._first if "optimizer" in self._first.part("shared") else self._files
        groups = files.part(GROUPS, object)
        if not isinstance(groups, dict) or "optimizer" not in groups:
            return None
        return [[name.removeprefix("model.") for name in one] for one in groups["optimizer"]]

    def _decoded(self, name: str) -> Any:
        files, node = self._node(name)
        if node is None:
            return None
        if self.kind == "sharded" and name == "optimizer":
            found = self._sharded_optimizer(files, node)
            for other in self.other_trees():
                more = other.part("sharded").get(name)
                if more is not None:
                    found = merged(found, self._sharded_optimizer(other, more))
            return found
        return _decode(node, files, self._piece)

    def _node(self, name: str) -> tuple[RankFiles, Node]:
        """The tree of a part, and the files that its tensors are in."""
        if self.kind == "sharded":
            return self._files, self._files.part("sharded").get(name)
        shared = self._first.part("shared")
        if name in shared:
            return self._first, shared[name]
        return self._files, self._files.part("own").get(name)

    def _sharded_optimizer(self, files: RankFiles, node: Node) -> dict[str, Any]:
        try:
            groups, state = node["groups"], node["state"].items()
        except (TypeError, LookupError, AttributeError) as odd:
            raise DamagedTreeError(f"the saved state is damaged: {odd!r}") from odd
        return {
            "state": {key: _decode(each, files, self._piece) for key, each in state},
            "param_groups": _decode(groups, files, self._piece),
        }

    def _piece(self, body: Any) -> TensorOnDisk:
        name = body["name"]
        saved = self.index[name]
        dtype = named_dtype(saved.dtype)

        def read() -> torch.Tensor:
            whole = torch.empty(saved.size, dtype=dtype)
            sharded.load(self.path, self.index, {name: TensorToFill(name, whole)})
            return whole

        return TensorOnDisk(name, dtype, tuple(saved.size), read)


def _decode(node: Node, files: RankFiles, piece: Callable[[Any], TensorOnDisk]) -> Any:
    """With a TensorOnDisk in the place of every tensor."""
    mapped = TensorDecoder(files.tensor, keep_mapped=True)
    parts: list[str] = []

    def leaf(kind: str, body: Node) -> object:
        if kind == "piece":
            return piece(body)
        is_local = kind == "local"  # of one rank that saved its own
        if kind != "tensor" and not is_local:
            return mapped.decode(kind, body)
        # Mapped: its bytes are read when they are used.
        tensor = mapped.decode("tensor", body["stored"]["tensor"] if is_local else body)
        assert isinstance(tensor, torch.Tensor)
        if is_local and list(tensor.shape) != list(body["size"]):
            parts.append(f"{body['name']}: {list(tensor.shape)} of {list(body['size'])}")
        return TensorOnDisk(body["name"], tensor.dtype, tuple(tensor.shape), lambda: tensor)

    found = tree.decode(node, leaf)
    if parts:
        raise ConfigError(
            f"each rank saved only its own shards ({parts[0]}), and where they belong is not known",
            hint="resume with the same ranks and save without per_rank, with a name of its own for "
            "each parameter of the whole model",
        )
    return found


def open_state(path: str, manifest: Manifest, **more: Any) -> SavedState:
    """Raises DamagedTreeError, and nothing else, for files that we did not write."""
    try:
        return SavedState(path, manifest, **more)
    except OSError as error:
        where = os.path.basename(str(error.filename or path))
        raise DamagedTreeError(f"{where} cannot be read: {error.strerror}") from error


def tensors_by_path(path: str, manifest: Manifest) -> dict[str, TensorOnDisk]:
    """'model.NAME' and 'optimizer.NAME.KEY' -> tensor, of either kind alike; of every rank where
    each saved its own."""
    if not set(PARTS) & set(manifest.per_rank):
        return _by_path(open_state(path, manifest))
    return {
        f"rank {rank}: {name}": tensor
        for rank in range(manifest.world_size)
        for name, tensor in _by_path(open_state(path, manifest, rank=rank)).items()
    }


def _by_path(saved: SavedState) -> dict[str, TensorOnDisk]:
    found = {f"model.{name}": each for name, each in saved.model.on_disk.items()}
    optimizer = by_names(saved) or {"state": {}}
    return found | {
        f"optimizer.{name}.{key}": value
        for name, values in optimizer["state"].items()
        for key, value in values.items()
        if isinstance(value, TensorOnDisk)
    }


def by_names(saved: SavedState) -> dict[str, Any] | None:
    """The optimizer's state with the names of parameters, not read yet; with numbers as keys where
    the names were not saved."""
    found, groups = saved.optimizer_on_disk, saved.parameter_groups
    if found is None or groups is None or saved.kind == "sharded":
        return found
    numbers = [number for group in found["param_groups"] for number in group["params"]]
    name_of = dict(zip(numbers, [name for group in groups for name in group], strict=True))
    return {
        "state": {name_of[number]: values for number, values in found["state"].items()},
        "param_groups": [
            {**group, "params": [name_of[number] for number in group["params"]]}
            for group in found["param_groups"]
        ],
    }
