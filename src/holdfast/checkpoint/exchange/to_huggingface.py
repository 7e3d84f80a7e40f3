"""A model as Hugging Face's libraries keep it: safetensors of at most 5 GB, and an index.

Tied weights are written once, under their first name, as `save_pretrained` does; the header names
the others, as `safetensors.torch.save_model` does.
"""

from __future__ import annotations

import json
import os

import msgspec

from holdfast.checkpoint.exchange.new_folder import new_folder, sync
from holdfast.checkpoint.exchange.tensor_stream import Progress, write_tensors
from holdfast.checkpoint.reading.saved_state import SavedState, SavedTensors, TensorOnDisk
from holdfast.checkpoint.safetensors_layout import CODES
from holdfast.checkpoint.tensors import dtype_name
from holdfast.errors import ConfigError

SHARD_SIZE = 5_000_000_000
INDEX = "model.safetensors.index.json"


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    files: tuple[str, ...]
    tensors: int
    bytes: int
    notes: tuple[str, ...]
    """what could not be taken along"""


def export(
    saved: SavedState, target: str, *, shard_size: int, progress: Progress = lambda _: None
) -> Exported:
    model = saved.model
    named, tied = _untied(model)
    shards = _shards(named, shard_size)
    names = [_file_name(i, len(shards)) for i in range(len(shards))]
    with new_folder(target) as folder:
        for name, shard in zip(names, shards, strict=True):
            write_tensors(
                os.path.join(folder, name), shard,
                metadata={"format": "pt", **{t: kept for t, kept in tied.items() if kept in shard}},
                progress=progress,
            )  # fmt: skip
        total = sum(each.size for each in named.values())
        if len(shards) > 1:
            where = {
                tensor: name for name, one in zip(names, shards, strict=True) for tensor in one
            }
            index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(where.items()))}
            path = os.path.join(folder, INDEX)
            with open(path, "x") as file:
                json.dump(index, file, indent=2)
            sync(path)
    notes = [f"{name} is no tensor: left out" for name in model if name not in model.on_disk]
    notes += [f"{name} is the same tensor as {kept}: written once" for name, kept in tied.items()]
    notes += one_of_many(saved)
    return Exported(
        path=os.path.abspath(target),
        files=(*names, *((INDEX,) if len(shards) > 1 else ())),
        tensors=len(named),
        bytes=total,
        notes=tuple(notes),
    )


def one_of_many(saved: SavedState) -> list[str]:
    """What every rank had for itself, and is taken from one of them."""
    names = saved.of_one_rank
    if not names:
        return []
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    said = f"{names[0]}{more}: each rank saved its own, and those of one rank are written"
    return [f"{said}; for those of another, give --rank N"]


def _untied(model: SavedTensors) -> tuple[dict[str, TensorOnDisk], dict[str, str]]:
    """Each tensor by its first name; other name -> that one."""
    first: dict[str, str] = {}
    tied = {}
    for name, tensor in model.on_disk.items():
        if dtype_name(tensor.dtype) not in CODES:
            raise ConfigError(
                f"{name} is {dtype_name(tensor.dtype)}, which safetensors has no type for",
                hint="export to DCP instead: --to dcp",
            )
        kept = first.setdefault(tensor.key, name)
        if kept != name:
            tied[name] = kept
    return {name: each for name, each in model.on_disk.items() if name not in tied}, tied


def _shards(named: dict[str, TensorOnDisk], shard_size: int) -> list[dict[str, TensorOnDisk]]:
    """In the model's order, each as full as it may be; a larger tensor is alone in its file."""
    shards: list[dict[str, TensorOnDisk]] = [{}]
    filled = 0
    for name, tensor in named.items():
        if shards[-1] and filled + tensor.size > shard_size:
            shards.append({})
            filled = 0
        shards[-1][name] = tensor
        filled += tensor.size
    return shards


def _file_name(number: int, count: int) -> str:
    return "model.safetensors" if count == 1 else (
        f"model-{number + 1:05d}-of-{count:05d}.safetensors"
    )  # fmt: skip
