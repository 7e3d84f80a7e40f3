"""CUDA's driver library by ctypes: as little of it as shows whether a GPU can be used."""

from __future__ import annotations

import ctypes
import os
import re
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.system import proc

LIBRARY = "libcuda.so.1"
SUCCESS = 0
NO_CODE = -1
"""where the trouble is not one that CUDA has a number for"""
PATTERN = bytes(range(256)) * 4096
"""what is copied to the GPU and back: 1 MiB"""

_MAPPED = re.compile(r"/\S*/libcuda\.so[\w.]*$", re.MULTILINE)


class CudaFailure(Exception):  # noqa: N818 - it is an answer, not an error
    """A call of CUDA did not succeed."""

    def __init__(self, code: int, name: str) -> None:
        super().__init__(name)
        self.code = code
        self.name = name


class CudaDevice(NamedTuple):
    handle: int
    uuid: str
    bus_id: str


class CudaDriver:
    """One loaded libcuda. Each method raises `CudaFailure`, and may never return."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        """Raises OSError when there is no such library."""
        self._cuda = load(LIBRARY)

    def version(self) -> str:
        """The newest CUDA that it supports; needs no GPU."""
        number = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def initialise(self) -> None:
        self._call("cuInit", 0)

    def first_device(self) -> CudaDevice:
        handle = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(handle), 0)
        raw = (ctypes.c_ubyte * 16)()
        self._call("cuDeviceGetUuid", ctypes.byref(raw), handle)
        bus_id = ctypes.create_string_buffer(32)
        self._call("cuDeviceGetPCIBusId", bus_id, 32, handle)
        return CudaDevice(handle.value, f"GPU-{uuid.UUID(bytes=bytes(raw))}", bus_id.value.decode())

    def open_context(self, device: CudaDevice) -> None:
        """The one that a program of the CUDA runtime would use too."""
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device.handle)
        self._call("cuCtxSetCurrent", context)

    def allocate(self) -> int:
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(len(PATTERN)))
        return pointer.value

    def copy_there_and_back(self, pointer: int) -> None:
        size, back = ctypes.c_size_t(len(PATTERN)), ctypes.create_string_buffer(len(PATTERN))
        where = ctypes.c_uint64(pointer)
        self._call("cuMemcpyHtoD_v2", where, PATTERN, size)
        self._call("cuMemcpyDtoH_v2", back, where, size)
        if back.raw != PATTERN:
            raise CudaFailure(NO_CODE, "data read back from the GPU differs from what was written")

    def close_context(self, device: CudaDevice) -> None:
        """Its memory goes with it."""
        self._call("cuDevicePrimaryCtxRelease_v2", device.handle)

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._cuda, name)
        except AttributeError:
            raise CudaFailure(NO_CODE, f"{LIBRARY} has no {name}") from None
        code = int(function(*arguments))
        if code != SUCCESS:
            raise CudaFailure(code, self._name(code))

    def _name(self, code: int) -> str:
        """'CUDA_ERROR_SYSTEM_NOT_READY'; a library older than the error does not know it."""
        text = ctypes.c_char_p()
        known = self._cuda.cuGetErrorName(code, ctypes.byref(text)) == SUCCESS
        return text.value.decode() if known and text.value else f"CUDA error {code}"


def loaded_library() -> str:
    """The file that was really loaded into this process; '' when none is."""
    found = _MAPPED.search(proc.maps(os.getpid()))
    return found[0] if found else ""
