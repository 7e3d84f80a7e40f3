"""The leaves of a tree that are torch's or NumPy's: tensors, arrays, scalars, dtypes, devices.

A tensor becomes a name in the tree and an entry in the file of tensors. The same memory seen
twice (tied weights) is written once and comes back as one tensor. Views that merely overlap are
written each by itself: `load_state_dict` copies values into tensors that overlap already.
"""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from holdfast.checkpoint.safetensors_layout import CODES, MOST_DIMENSIONS, TensorEntry
from holdfast.checkpoint.tree import DamagedTreeError, Node, Path, place
from holdfast.errors import ConfigError
from holdfast.text import printable

_PLAIN = {torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.Tensor)}
"""other subclasses hold more than their values: they would not come back as what they were"""
_NUMPY_KINDS = "?biufcSUmM"
"""arrays of plain values; 'O' holds Python objects, 'V' is a record"""
_MOST_EMPTY = 1 << 20
"""elements of an array whose elements have no bytes"""
_INLINE = 64 * 1024
"""bytes: smaller arrays are in the tree, so that a rank with generators only needs one file"""


class NamedTensor(NamedTuple):
    """One tensor, to be written."""

    name: str
    tensor: torch.Tensor

    @property
    def size(self) -> int:
        return self.tensor.numel() * self.tensor.element_size()

    def entry(self) -> TensorEntry:
        tensor, name = self.tensor, dtype_name(self.tensor.dtype)
        code, shape = CODES.get(name), tuple(tensor.shape)
        if code is None:
            code, shape = CODES["uint8"], (self.size,)
        return TensorEntry(self.name, code, shape, self.size, tensor.element_size())


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def named_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise DamagedTreeError(f"this torch has no dtype {name!r:.40}")
    return dtype


class TensorEncoder:
    """For `tree.encode`: collects the tensors it meets."""

    def __init__(self) -> None:
        self.tensors: list[NamedTensor] = []
        self._names = {"__metadata__"}  # the format's own
        self._seen: dict[tuple[object, ...], str] = {}

    def encode(self, value: object, path: Path) -> Node | None:
        if isinstance(value, torch.Tensor):
            return self._tensor(value, path)
        if isinstance(value, torch.dtype):
            return {"torch.dtype": dtype_name(value)}
        if isinstance(value, torch.device):
            return {"torch.device": str(value)}
        if isinstance(value, torch.Size):
            return {"torch.Size": list(value)}
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            return self._array(numpy, value, path)
        return None

    def _tensor(self, tensor: torch.Tensor, path: Path) -> Node:
        if problem := cannot_be_written(tensor):
            raise ConfigError(f"{place(path)} is {problem}")
        body: dict[str, Node] = {"name": self._add(tensor.detach(), path)}
        if tensor.device.type != "cpu":
            body["on"] = tensor.device.type
        if dtype_name(tensor.dtype) not in CODES:
            body |= {"dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape)}
        return {"tensor": body}

    def _add(self, tensor: torch.Tensor, path: Path) -> str:
        memory = _memory(tensor)
        known = self._seen.get(memory)
        if known is not None:
            return known
        wanted = name = printable(".".join(str(key) for key in path))
        count = 1
        while name in self._names:
            count += 1
            name = f"{wanted}#{count}"
        self._names.add(name)
        if tensor.numel():
            self._seen[memory] = name
        self.tensors.append(NamedTensor(name, tensor))
        return str(name)

    def _array(self, numpy: Any, value: Any, path: Path) -> Node:
        if value.dtype.kind not in _NUMPY_KINDS or type(value) in (numpy.ma.MaskedArray,):
            raise ConfigError(f"{place(path)} is a NumPy array of {value.dtype}: "
                             "only arrays of plain values can be saved")  # fmt: skip
        dtype, data = value.dtype.str, value.tobytes()
        if isinstance(value, numpy.generic):
            return {"numpy.scalar": [dtype, [], base64.b64encode(data).decode()]}
        if len(data) <= _INLINE:
            return {"numpy.array": [dtype, list(value.shape), base64.b64encode(data).decode()]}
        name = self._add(torch.frombuffer(bytearray(data), dtype=torch.uint8), path)
        return {"numpy.stored": [dtype, list(value.shape), name]}


def cannot_be_written(tensor: torch.Tensor) -> str:
    """'' or what it is and what to do about it."""
    if tensor.is_meta:
        return "a tensor on the meta device: it has no values yet"
    if torch.nn.parameter.is_lazy(tensor):
        return "a lazy parameter: run the model once before saving"
    if tensor.is_quantized:
        return "a quantised tensor: save its int_repr(), scale and zero point instead"
    if tensor.layout != torch.strided or tensor.is_nested:
        return f"a tensor of layout {tensor.layout}: save its to_dense(), or its parts"
    if type(tensor) not in _PLAIN:
        kind = type(tensor)
        return (f"a {kind.__module__}.{kind.__name__}: only plain tensors can be saved here; "
                "give its owner state_dict() and load_state_dict()")  # fmt: skip
    return ""


def _memory(tensor: torch.Tensor) -> tuple[object, ...]:
    """Equal for two tensors that are the same bytes, read the same way."""
    return (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride(),
            tensor.is_conj(), tensor.is_neg())  # fmt: skip


class TensorDecoder:
    """For `tree.decode`: asks `read` once for each tensor.

    `keep_mapped`: the tensors may stay mapped from the file, because their receiver copies the
    values (a module's load_state_dict). Otherwise they are copied, to the kind of device on
    which they were saved where this machine has it.
    """

    def __init__(
        self,
        read: Callable[[str], torch.Tensor],
        *,
        keep_mapped: bool = False,
        copy: Callable[[torch.Tensor, str], torch.Tensor] | None = None,
    ) -> None:
        self._read = read
        self._keep_mapped = keep_mapped
        self._copy = copy or own
        self._given: dict[str, torch.Tensor] = {}
        self._arrays: set[str] = set()

    def decode(self, kind: str, body: Node) -> object:
        if kind == "tensor":
            return self._tensor(**body)
        if kind in _TORCH_KINDS:
            return _TORCH_KINDS[kind](body)
        if kind in ("numpy.scalar", "numpy.array", "numpy.stored"):
            return self._numpy(kind, *body)
        raise LookupError(f"a node of unknown kind {kind!r:.40}")

    def _tensor(
        self, *, name: str, on: str = "cpu", dtype: str = "", shape: tuple[int, ...] = ()
    ) -> torch.Tensor:
        if name not in self._given:
            tensor = self._read(name)
            if dtype:
                tensor = _as_bytes_were(tensor, named_dtype(dtype), shape)
            self._given[name] = tensor if self._keep_mapped else self._copy(tensor, on)
        return self._given[name]

    def _numpy(self, kind: str, dtype: str, shape: list[int], data: str) -> object:
        if kind == "numpy.stored":
            if data in self._arrays:  # we write each once; a forged tree asks for a million copies
                raise ValueError(f"two arrays in the bytes of {data!r:.80}")
            self._arrays.add(data)
            return _array(dtype, shape, self._copy(self._read(data), "cpu").numpy())
        array = _array(dtype, shape, bytearray(base64.b64decode(data, validate=True)))
        return array[()] if kind == "numpy.scalar" else array


_TORCH_KINDS: dict[str, Callable[[Any], object]] = {
    "torch.dtype": named_dtype,
    "torch.device": torch.device,
    "torch.Size": torch.Size,
}


def _array(dtype: str, shape: list[int], data: Any) -> Any:
    """In these bytes, which may get their values later."""
    import numpy as np  # noqa: PLC0415 - only where some were saved

    found, count = np.dtype(dtype), _elements(shape)
    if found.kind not in _NUMPY_KINDS or len(data) != count * found.itemsize:
        raise ValueError(f"{len(data)} bytes for an array {shape!r:.80} of {dtype!r:.40}")
    if not found.itemsize:
        if count > _MOST_EMPTY:  # of no bytes, but NumPy takes one for each
            raise ValueError(f"an array {shape!r:.80} of {dtype!r:.40}")
        return np.zeros(shape, found)
    return np.frombuffer(data, dtype=found).reshape(shape)


def _elements(shape: object) -> int:
    """How many a shape from a file asks for; ValueError for what is none."""
    if not isinstance(shape, list | tuple) or len(shape) > MOST_DIMENSIONS:
        raise ValueError("a shape that is none")
    if any(type(side) is not int or side < 0 for side in shape):
        raise ValueError(f"a shape {shape!r:.80}")
    return math.prod(shape)


def _as_bytes_were(raw: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if raw.numel() != _elements(shape) * dtype.itemsize:
        raise ValueError(f"{raw.numel()} bytes for {shape!r:.80} of {dtype}")
    return raw.view(dtype).reshape(shape) if raw.numel() else torch.empty(shape, dtype=dtype)


def device_for(kind: str) -> torch.device:
    """For what was saved from this kind of device: the current one of it, where there is any."""
    if kind == "cuda" and torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def own(tensor: torch.Tensor, kind: str) -> torch.Tensor:
    """A copy of a mapped one, on the kind of device it was saved from."""
    return torch.empty_like(tensor, device=device_for(kind)).copy_(tensor)
