"""DCP's `.metadata`: a pickle, read without running anything that it names.

torch reads it by pickle.load, which calls whatever the file says. Here only the classes that DCP
writes there are known; then everything it says is checked against the files that are there.
"""

from __future__ import annotations

import math
import os
import pathlib
import pickle
import stat
from collections import OrderedDict
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as described
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)

from holdfast.errors import ConfigError, EnvironmentFailure

METADATA = ".metadata"
LARGEST = 2 << 30
"""bytes; 1,024 ranks and 45,000 tensors need less than a tenth"""
_CLASSES = {
    ("torch.distributed.checkpoint.metadata", name): getattr(described, name)
    for name in (
        *("BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex"),
        *("StorageMeta", "TensorProperties", "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"),
    )
}
_ALLOWED: dict[tuple[str, str], Any] = _CLASSES | {
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): _StorageInfo,
    ("torch", "Size"): torch.Size,
    ("collections", "OrderedDict"): OrderedDict,
    ("pathlib", "PosixPath"): pathlib.PurePosixPath,
    ("pathlib", "PurePosixPath"): pathlib.PurePosixPath,
    ("pathlib._local", "PosixPath"): pathlib.PurePosixPath,
}


class _KnownClassesOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return _ALLOWED[module, name]
        if (module, name) == ("torch.serialization", "_get_layout"):
            return _layout
        found = getattr(torch, name, None) if module == "torch" else None
        if isinstance(found, torch.dtype):
            return found
        raise pickle.UnpicklingError(f"it names {module}.{name}, which DCP never writes")


def _layout(name: str) -> torch.layout:
    if name != "torch.strided":
        raise pickle.UnpicklingError(f"a tensor of layout {name!r:.40}")
    return torch.strided


def read_metadata(folder: str) -> Metadata:
    """Raises ConfigError for what DCP did not write."""
    path = os.path.join(folder, METADATA)
    size = regular_size(path)
    if size > LARGEST:
        raise ConfigError(f"{path} has {size} bytes: too large to be read")
    try:
        with open(path, "rb") as file:
            found = _KnownClassesOnly(file).load()
        _check(folder, found)
    except OSError as error:
        raise EnvironmentFailure(f"{path} cannot be read: {error.strerror}") from error
    except Exception as odd:
        raise ConfigError(f"{path} is not read: {odd}") from odd
    assert isinstance(found, Metadata)
    return found


def regular_size(path: str) -> int:
    try:
        found = os.lstat(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{path} is not a regular file: links and devices are not followed")
    return found.st_size


def _check(folder: str, found: Any) -> None:
    if not isinstance(found, Metadata) or not isinstance(found.state_dict_metadata, dict):
        raise TypeError("it is no Metadata of DCP")
    if not isinstance(found.storage_data, dict):
        raise TypeError("it does not say where its tensors are")
    sizes: dict[str, int] = {}
    for index, place in found.storage_data.items():
        if not isinstance(index, MetadataIndex) or not isinstance(place, _StorageInfo):
            raise TypeError("it does not say where its tensors are")
        name = place.relative_path
        if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
            raise ValueError(f"it leads out of its folder: {name!r:.80}")
        if name not in sizes:
            sizes[name] = regular_size(os.path.join(folder, name))
        if not 0 <= place.offset <= place.offset + place.length <= sizes[name]:
            raise ValueError(f"{name} is cut short")
    total = sum(sizes.values())
    for name, each in found.state_dict_metadata.items():
        if not isinstance(each, BytesStorageMetadata):
            _check_tensor(name, each, total)


def _check_tensor(name: object, each: Any, total: int) -> None:
    if not isinstance(name, str) or not isinstance(each, TensorStorageMetadata):
        raise TypeError(f"{name!r:.80} is no tensor of DCP")
    if math.prod(each.size) * each.properties.dtype.itemsize > total:
        raise ValueError(f"{name!r:.80} is larger than all files together")
    # A gap would be filled with whatever is in memory.
    if sum(math.prod(chunk.sizes) for chunk in each.chunks) != math.prod(each.size):
        raise ValueError(f"the pieces of {name!r:.80} do not make a whole")
