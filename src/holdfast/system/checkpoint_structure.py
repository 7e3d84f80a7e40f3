"""Is a checkpoint whole, as far as its structure tells? Nothing is unpickled, no tensor read.

Each function answers in words what is wrong, '' when nothing is. They read ends and tables of
contents only: a few kilobytes of a file of many gigabytes.
"""

from __future__ import annotations

import os
import pickletools
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from holdfast.system.zip_structure import problem_of_zip

LARGEST_TABLE = 32 << 20
"""bytes of a table of contents we are ready to read; we say nothing about a larger one"""
LARGEST_SAFETENSORS_HEADER = 100_000_000
"""its loader refuses more"""
LARGEST_METADATA = 256 << 10
"""a longer .metadata is not walked opcode by opcode: that would cost seconds"""

_ZIP_START = b"PK\x03\x04"
_SHARD = re.compile(rb"__\d+_\d+\.distcp")


def problem_of_torch_file(path: str) -> str:
    """torch.save's zip format; its older format (a bare pickle) has no structure to check."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        start = file.read(4)
        if start == _ZIP_START:
            return problem_of_zip(file, size)
        if _ZIP_START.startswith(start):
            return f"cut short: only {size} bytes long" if size else "empty"
        if start == b"\0\0\0\0" and path.endswith((".pt", ".pth", ".ckpt")):
            return "starts with zeros, as no torch file does: its data never reached the disk"
    return ""


def problem_of_safetensors(path: str) -> str:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            return f"cut short: only {size} bytes long" if size else "empty"
        (length,) = struct.unpack("<Q", file.read(8))
        if 8 + length > size:
            return "cut short: its header is longer than the file"
        if length > LARGEST_TABLE:
            too_large = length > LARGEST_SAFETENSORS_HEADER
            return f"damaged: its header claims {length} bytes" if too_large else ""
        header = file.read(length)
    try:
        tensors = msgspec.json.decode(header, type=dict[str, dict[str, object]])
        ends = [_end_of(tensor) for name, tensor in tensors.items() if name != "__metadata__"]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "damaged: its header is not a table of tensors"
    expected = 8 + length + max(ends, default=0)
    if expected > size:
        return f"cut short: its header promises {expected} bytes, the file has {size}"
    return f"damaged: {size - expected} bytes too many at its end" if expected < size else ""


def _end_of(tensor: dict[str, object]) -> int:
    offsets = tensor.get("data_offsets")
    if not isinstance(offsets, list) or len(offsets) != 2 or not isinstance(offsets[1], int):
        raise ValueError("a tensor without a place")
    return offsets[1]


class FolderProblem(NamedTuple):
    """What is wrong with a folder of torch.distributed.checkpoint."""

    words: str = ""
    """'' when it is whole"""
    incomplete: bool = False
    """its save did not finish; what is there is not damaged"""


def problem_of_dcp_folder(folder: str) -> FolderProblem:
    """torch.distributed.checkpoint writes .metadata last: without it the save did not finish."""
    with os.scandir(folder) as entries:
        sizes = {e.name: e.stat().st_size for e in entries if e.is_file()}
    if ".metadata" not in sizes:
        words = "incomplete: .metadata, which is written last, is missing"
        return FolderProblem(words, incomplete=True)
    if sizes[".metadata"] > LARGEST_TABLE:
        return FolderProblem()
    with open(os.path.join(folder, ".metadata"), "rb") as file:
        metadata = file.read()
    try:
        needed = _needed_shards(metadata)
    except (ValueError, struct.error, OverflowError):
        return FolderProblem("damaged: .metadata is cut short or unreadable")
    for name, end in sorted(needed.items()):
        if name not in sizes:
            words = f"incomplete: .metadata names {name}, which is not there"
            return FolderProblem(words, incomplete=True)
        if sizes[name] < end:
            words = f"damaged: {name} has {sizes[name]} bytes, .metadata says at least {end}"
            return FolderProblem(words)
    return FolderProblem()


def _needed_shards(metadata: bytes) -> dict[str, int]:
    """The shards that .metadata names, and how long each must be at least."""
    if not metadata.endswith(b"."):  # the opcode that ends every pickle
        raise ValueError("a pickle without its end")
    named = dict.fromkeys((name.decode() for name in _SHARD.findall(metadata)), 1)
    return named | (_shard_sizes(metadata) if len(metadata) <= LARGEST_METADATA else {})


def _shard_sizes(metadata: bytes) -> dict[str, int]:
    """How long each shard must be at least, read from the pickle's opcodes without running it.

    A shard's place is a mapping: 'relative_path', name, 'offset', number, 'length', number.
    """
    needed: dict[str, int] = {}
    values = list(_pickled_values(metadata))
    for i in range(len(values) - 5):
        key, name, second, offset, third, length = values[i : i + 6]
        if (key, second, third) != ("relative_path", "offset", "length"):
            continue
        if isinstance(name, str) and isinstance(offset, int) and isinstance(length, int):
            needed[name] = max(needed.get(name, 0), offset + length)
    return needed


def _pickled_values(data: bytes) -> Iterator[str | int]:
    """The texts and numbers of a pickle in their order, repeated ones included."""
    memo: dict[int, object] = {}
    latest: object = None
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "MEMOIZE":
            memo[len(memo)] = latest
        elif opcode.name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[int(argument or 0)] = latest
        elif opcode.name not in ("PROTO", "FRAME"):
            repeated = opcode.name in ("GET", "BINGET", "LONG_BINGET")
            latest = memo.get(int(argument or 0)) if repeated else argument
            if isinstance(latest, (str, int)):
                yield latest
