"""Checkpoints of others -> one nest of dicts, with tensors that are read when they are written.

Nothing is unpickled plainly: torch.save files by torch's weights_only, DCP's metadata by
dcp_metadata.py, safetensors hold no code at all.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import types
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from holdfast.checkpoint.exchange.dcp_metadata import METADATA, read_metadata, regular_size
from holdfast.checkpoint.rank_files import TensorFile
from holdfast.checkpoint.reading.saved_state import TensorOnDisk
from holdfast.checkpoint.tree import DamagedTreeError
from holdfast.errors import ConfigError, EnvironmentFailure

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import ReadItem

INDEX = "model.safetensors.index.json"
Nest = dict[Any, Any]
UNREADABLE = object()
"""a value that only unpickling could read; what others save beside a model is often such"""


def read_source(path: str) -> tuple[str, Nest]:
    """(what it is, what it holds)."""
    try:
        if os.path.isdir(path):
            return _read_folder(path)
        regular_size(path)
        if path.endswith(".safetensors"):
            return "safetensors", {"model": _safetensors([path])}
        return "torch.save", _torch_save(path)
    except OSError as error:
        raise EnvironmentFailure(f"{path} cannot be read: {error.strerror}") from error


def _read_folder(path: str) -> tuple[str, Nest]:
    if os.path.lexists(os.path.join(path, METADATA)):
        return "DCP", _dcp(path)
    names = sorted(os.listdir(path))
    if INDEX in names:
        return "safetensors", {"model": _safetensors(_indexed(path))}
    files = [os.path.join(path, name) for name in names if name.endswith(".safetensors")]
    if not files:
        raise ConfigError(
            f"{path} holds neither DCP (.metadata) nor safetensors",
            hint="give the file itself, if it was written by torch.save",
        )
    return "safetensors", {"model": _safetensors(files)}


# --- safetensors ---------------------------------------------------------------------------------


def _indexed(folder: str) -> list[str]:
    index = os.path.join(folder, INDEX)
    if regular_size(index) > 100_000_000:
        raise ConfigError(f"{index} is too large to be read")
    try:
        with open(index, "rb") as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
        plain = [name for name in names if os.path.basename(name) == name]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as odd:
        raise ConfigError(f"{index} is not read: {odd}") from odd
    if plain != names:
        raise ConfigError(f"{index} leads out of its folder")
    return [os.path.join(folder, name) for name in names]


def _safetensors(files: Iterable[str]) -> dict[str, TensorOnDisk]:
    """The header's metadata may name tied weights that were written once."""
    found: dict[str, TensorOnDisk] = {}
    tied: dict[str, str] = {}
    for path in files:
        regular_size(path)
        try:
            file = TensorFile(path)
            found |= {name: _on_disk(file.read(name), name) for name in file.names}
        except DamagedTreeError as odd:
            raise ConfigError(f"{path} is not read: {odd.sentence}") from odd
        tied |= file.metadata
    return found | {n: found[kept] for n, kept in tied.items() if kept in found and n not in found}


def _on_disk(tensor: torch.Tensor, key: str) -> TensorOnDisk:
    return TensorOnDisk(key, tensor.dtype, tuple(tensor.shape), lambda: tensor)


# --- torch.save ----------------------------------------------------------------------------------


def _torch_save(path: str) -> Nest:
    """Values of arguments are harmless and common; nothing else of their kind is let in."""
    try:
        with torch.serialization.safe_globals([argparse.Namespace, types.SimpleNamespace]):
            try:
                found = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
            except RuntimeError:  # the format before torch 1.6 cannot be mapped
                found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as refused:
        what = str(refused).split("Unsupported global: GLOBAL ")[-1].split(" ")[0]
        raise ConfigError(
            f"{path} cannot be read without running code from it ({what[:100]})",
            hint="where you trust it, load it with torch.load(weights_only=False) and save only "
            "its tensors and numbers again",
        ) from refused
    except (RuntimeError, ValueError, EOFError, LookupError, TypeError, AttributeError) as odd:
        raise ConfigError(f"{path} is no file of torch.save: {odd}") from odd
    if not isinstance(found, dict):
        raise ConfigError(f"{path} holds a {type(found).__name__}, not a dict")
    return _lazy(found)  # type: ignore[no-any-return]


def _lazy(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        key = f"{plain.data_ptr()} {plain.dtype} {plain.shape} {plain.stride()}"
        return _on_disk(plain, key if plain.numel() else str(id(value)))
    if isinstance(value, dict):
        return {key: _lazy(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_lazy(item) for item in value)
    return value


# --- DCP -----------------------------------------------------------------------------------------


class _SafeReader(FileSystemReader):
    """torch's own would unpickle the metadata plainly."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.found = read_metadata(folder)

    def read_metadata(self, *_args: Any, **_more: Any) -> Metadata:
        return self.found


class _SafePlanner(DefaultLoadPlanner):
    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        found = torch.load(value, map_location="cpu", weights_only=True)
        self.state_dict[read_item.dest_index.fqn] = found


def _cause(odd: BaseException) -> str:
    """DCP wraps what happened, with its whole traceback."""
    failures = getattr(odd, "failures", None) or {0: (odd, None)}
    return str(next(iter(failures.values()))[0])[:300]


def _dcp(folder: str) -> Nest:
    reader = _SafeReader(folder)

    def fetch(name: str, empty: Any) -> Any:
        state = {name: empty}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there is no process group is intended
                load(state, storage_reader=reader, planner=_SafePlanner(), no_dist=True)
        except (Exception, CheckpointException) as odd:  # the latter is no Exception
            if not isinstance(empty, torch.Tensor):
                return UNREADABLE
            raise ConfigError(f"{folder}: {name!r:.80} cannot be read: {_cause(odd)}") from odd
        return state[name]

    def tensor(name: str, about: TensorStorageMetadata) -> TensorOnDisk:
        dtype, shape = about.properties.dtype, tuple(about.size)
        return TensorOnDisk(
            name, dtype, shape, lambda: fetch(name, torch.empty(shape, dtype=dtype))
        )

    flat = {
        name: tensor(name, about) if isinstance(about, TensorStorageMetadata) else fetch(name, 0)
        for name, about in reader.found.state_dict_metadata.items()
    }
    return _nested(flat, reader.found.planner_data)


def _nested(flat: Nest, paths: Any) -> Nest:
    """By the paths that DCP has noted; else by the first part of each name."""
    whole: Nest = {}
    for name, value in flat.items():
        noted = paths.get(name) if isinstance(paths, dict) else None
        path = noted if isinstance(noted, tuple) and noted else tuple(name.split(".", 1))
        place = whole
        for key in path[:-1]:
            place = place.setdefault(key, {})
            if not isinstance(place, dict):
                raise ConfigError(f"two values of the checkpoint have the name {name!r:.80}")
        place[path[-1]] = value
    return _with_lists(whole, "")  # type: ignore[no-any-return]


def _with_lists(value: Any, name: object) -> Any:
    """Places in a list come as numbers; only an optimizer's state has numbers as keys."""
    if not isinstance(value, dict):
        return value
    inner = {key: _with_lists(item, key) for key, item in value.items()}
    is_list = bool(inner) and name != "state" and sorted(map(str, inner)) == sorted(
        map(str, range(len(inner)))
    )  # fmt: skip
    if is_list and all(type(key) is int for key in inner):
        return [inner[i] for i in range(len(inner))]
    return inner
