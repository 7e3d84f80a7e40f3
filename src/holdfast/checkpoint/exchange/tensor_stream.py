"""A file of tensors, written one tensor at a time: memory for the largest is enough."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from holdfast.analysis.checkpoints.manifest import FileEntry
from holdfast.checkpoint.files import PieceDigests
from holdfast.checkpoint.reading.saved_state import TensorOnDisk, raw_bytes
from holdfast.checkpoint.safetensors_layout import CODES, TensorEntry, lay_out
from holdfast.checkpoint.tensors import dtype_name

Progress = Callable[[int], None]
_STEP = 16 << 20


def write_tensors(
    path: str,
    tensors: Mapping[str, TensorOnDisk],
    *,
    metadata: Mapping[str, str] | None = None,
    progress: Progress = lambda _: None,
) -> FileEntry:
    """In the safetensors format, on the disk when it returns."""
    layout = lay_out([_entry(name, each) for name, each in tensors.items()], metadata)
    digests = PieceDigests()
    with open(path, "xb", buffering=0) as file:

        def write(chunk: memoryview) -> None:
            digests.update(chunk)
            progress(len(chunk))
            while chunk:
                chunk = chunk[file.write(chunk) :]

        write(memoryview(layout.header))
        for name in sorted(tensors, key=lambda name: layout.starts[name]):
            raw = raw_bytes(tensors[name].read())
            assert len(raw) == tensors[name].size, name
            for at in range(0, len(raw), _STEP):
                write(raw[at : at + _STEP])
        os.fsync(file.fileno())
    return FileEntry(name=os.path.basename(path), size=layout.size, sha256=digests.hexdigests())


def _entry(name: str, tensor: TensorOnDisk) -> TensorEntry:
    """A type that the format does not know is written as bytes, as tensors.py does."""
    code = CODES.get(dtype_name(tensor.dtype))
    shape = tensor.shape if code else (tensor.size,)
    return TensorEntry(name, code or CODES["uint8"], shape, tensor.size, tensor.dtype.itemsize)
