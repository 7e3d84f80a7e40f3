"""Two checkpoints, compared: step, configuration, names and shapes, values.

Two plain ones are compared byte by byte without torch; it is imported where shards have to be put
together, or to say by how much values differ.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.checkpoint import safetensors_layout, tree
from holdfast.checkpoint.reading.find import FoundCheckpoint
from holdfast.checkpoint.safetensors_layout import DTYPES, TensorSlice
from holdfast.checkpoint.tree import DamagedTreeError, Node

_CHUNK = 1 << 22


class TensorDifference(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor that is not the same in both."""

    name: str
    first: str
    """'float32 [4, 3]', or 'absent'"""
    second: str
    max_abs: float | None = None
    """the largest difference of two values; None where they cannot be compared"""
    nan_in_one: int = 0
    """values that are NaN in one of them only"""


class CheckpointDifference(msgspec.Struct, frozen=True, kw_only=True):
    facts: dict[str, tuple[str, str]]
    """step, epoch, ranks, kind; configuration keys as 'config.lr': only those that differ"""
    tensors: tuple[TensorDifference, ...]
    values: tuple[str, ...]
    """paths of other values that differ: learning rates, counters"""
    equal: int
    """tensors that are the same, bit for bit"""

    @property
    def found(self) -> bool:
        return bool(self.facts or self.tensors or self.values)


@dataclass(frozen=True)
class _Side:
    """One tensor of one checkpoint."""

    described: str
    raw: Callable[[], memoryview]
    tensor: Callable[[], Any]


def compare(
    first: FoundCheckpoint, second: FoundCheckpoint, progress: Callable[[int], None]
) -> CheckpointDifference:
    with contextlib.ExitStack() as stack:
        plain = first.manifest.kind == second.manifest.kind == "plain"
        view = _plain_tensors if plain else _any_tensors
        ours, theirs = (stack.enter_context(view(each)) for each in (first, second))
        found: list[TensorDifference] = []
        for name in dict.fromkeys([*ours, *theirs]):
            one, other = ours.get(name), theirs.get(name)
            difference = _difference(name, one, other, progress)
            found += [difference] if difference else []
        count = len(ours.keys() | theirs.keys()) - len(found)
    return CheckpointDifference(
        facts=_facts(first, second),
        tensors=tuple(found),
        values=tuple(_other_values(first.path, second.path)) if plain else (),
        equal=count,
    )


def _facts(first: FoundCheckpoint, second: FoundCheckpoint) -> dict[str, tuple[str, str]]:
    def facts(found: FoundCheckpoint) -> dict[str, str]:
        about = found.manifest
        named = {"step": about.step, "epoch": about.epoch, "ranks": about.world_size,
                 "kind": about.kind}  # fmt: skip
        return {key: str(value) for key, value in named.items()} | {
            f"config.{key}": value for key, value in about.config.items()
        }

    ours, theirs = facts(first), facts(second)
    return {
        key: (ours.get(key, "not set"), theirs.get(key, "not set"))
        for key in dict.fromkeys([*ours, *theirs])
        if ours.get(key) != theirs.get(key)
    }


def _difference(
    name: str, one: _Side | None, other: _Side | None, progress: Callable[[int], None]
) -> TensorDifference | None:
    described = [side.described if side else "absent" for side in (one, other)]
    if one is None or other is None or described[0] != described[1]:
        return TensorDifference(name=name, first=described[0], second=described[1])
    if _same_bytes(one.raw(), other.raw(), progress):
        return None
    amount, nans = _amount(one, other)
    return TensorDifference(
        name=name, first=described[0], second=described[1], max_abs=amount, nan_in_one=nans
    )


def _same_bytes(one: memoryview, other: memoryview, progress: Callable[[int], None]) -> bool:
    for at in range(0, len(one), _CHUNK):
        mine = bytes(one[at : at + _CHUNK])
        if mine != bytes(other[at : at + _CHUNK]):
            return False
        progress(len(mine))
    return len(one) == len(other)


def _amount(one: _Side, other: _Side) -> tuple[float | None, int]:
    """The largest difference where both are numbers; how many are NaN on one side only."""
    try:
        import torch  # noqa: PLC0415 - only where values differ
    except ImportError:
        return None, 0
    ours, theirs = one.tensor().reshape(-1), other.tensor().reshape(-1)
    worst, nans = 0.0, 0
    for a, b in zip(ours.split(_CHUNK), theirs.split(_CHUNK), strict=True):
        wide = torch.complex128 if a.is_complex() else torch.float64
        mine, yours = a.to(wide), b.to(wide)
        same = (mine == yours) | (mine.isnan() & yours.isnan())  # inf - inf is no difference
        nans += int((mine.isnan() ^ yours.isnan()).sum())
        apart = (mine - yours).abs()[~(same | mine.isnan() | yours.isnan())]
        worst = max(worst, float(apart.max()) if apart.numel() else 0.0)
    return worst, nans


# --- plain: the file of tensors as it is --------------------------------------------------------


@contextlib.contextmanager
def _plain_tensors(found: FoundCheckpoint) -> Iterator[Mapping[str, _Side]]:
    file_name = os.path.join(found.path, "rank-0.safetensors")
    if not os.path.exists(file_name):
        yield {}
        return
    with open(file_name, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header = file.read(safetensors_layout.header_size(file.read(8), size))
        slices = safetensors_layout.parse(header, size)
        memory = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    yield {name: _plain_side(memory, each) for name, each in slices.items()}


def _plain_side(memory: memoryview, found: TensorSlice) -> _Side:
    def raw() -> memoryview:
        return memory[found.start : found.start + found.size]

    def tensor() -> Any:
        import torch  # noqa: PLC0415 - only where values differ

        dtype = getattr(torch, DTYPES.get(found.code, "uint8"))
        return torch.frombuffer(bytearray(raw()), dtype=dtype)

    return _Side(f"{DTYPES.get(found.code, found.code)} {list(found.shape)}", raw, tensor)


def _other_values(first: str, second: str) -> list[str]:
    """Of what all ranks share; tensors are names there, and compared above."""
    try:
        ours, theirs = (dict(_flat(_shared(path))) for path in (first, second))
    except RecursionError as deep:
        raise DamagedTreeError("the saved state is damaged: nested too deep") from deep
    return [key for key in dict.fromkeys([*ours, *theirs]) if ours.get(key) != theirs.get(key)]


def _shared(path: str) -> Node:
    with open(os.path.join(path, "rank-0.json"), "rb") as file:
        document = tree.from_json(file.read())
    if not isinstance(document, dict):
        raise DamagedTreeError("rank-0.json is damaged: it holds no tree")
    return document.get("shared")


def _flat(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    if isinstance(node, dict):
        if len(node) == 1 and next(iter(node)) in ("dict", "pairs", "ordered", "tuple"):
            yield from _flat(next(iter(node.values())), path)
            return
        for key, value in node.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    elif isinstance(node, list):
        for i, value in enumerate(node):
            pair = isinstance(value, list) and len(value) == 2 and isinstance(value[0], str | int)
            name, inner = value if pair else (i, value)
            yield from _flat(inner, f"{path}.{name}")
    else:
        yield path, node


# --- any kind: put together by torch ------------------------------------------------------------


@contextlib.contextmanager
def _any_tensors(found: FoundCheckpoint) -> Iterator[Mapping[str, _Side]]:
    from holdfast.checkpoint.reading.saved_state import tensors_by_path  # noqa: PLC0415 - torch

    tensors = tensors_by_path(found.path, found.manifest)
    yield {name: _Side(str(each), each.raw, each.read) for name, each in tensors.items()}
