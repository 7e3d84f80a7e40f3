"""A stand-in for libnvidia-ml.so.1 under NVIDIA's own bindings.

The bindings look up a function by its name and hand it pointers, as they do with the real one;
what is written through them are the structures of nvml.h, in their sizes and versions.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import tests.fakes.nvml.link_calls  # noqa: F401 (its calls enter themselves)
from tests.fakes.nvml.gpu_calls import FIRST_PART, NOT_FOUND, NUMBERS, REASONS
from tests.fakes.nvml.layouts import INVALID_ARGUMENT, SUCCESS, put, put_text, whole
from tests.fakes.nvml.session import GPU_CALLS, Refused, Session, hang, obey
from tests.fakes.nvml.state import FakeDriver, FakeGpu

UNINITIALIZED = 1
FIRST_HANDLE = 0x7F0000000000

WORDS = {
    0: "Success",
    1: "Uninitialized",
    2: "Invalid Argument",
    3: "Not Supported",
    4: "Insufficient Permissions",
    6: "Not Found",
    9: "Driver Not Loaded",
    13: "Function Not Found",
    15: "GPU is lost",
    16: "GPU requires reset",
    18: "Driver/library version mismatch",
    25: "Argument version mismatch",
    999: "Unknown Error",
}


class FakeLibrary:
    """Loaded in place of the real one; each attribute is a C function."""

    def __init__(self, driver: FakeDriver) -> None:
        self._session = Session(driver)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name in self._session.driver.missing:
            raise AttributeError(name)
        if name == "nvmlErrorString":
            return ErrorString()
        if name in LIBRARY_CALLS:
            return lambda *arguments: self._whole_driver(name, arguments)
        if name in NUMBERS or name in REASONS or name in GPU_CALLS:
            return lambda *arguments: self._one_gpu(name, arguments)
        raise AttributeError(name)

    def _whole_driver(self, name: str, arguments: tuple[Any, ...]) -> int:
        if name in self._session.driver.hangs:
            hang()
        try:
            return LIBRARY_CALLS[name](self._session, *arguments)
        except Refused as refusal:
            return refusal.code

    def _one_gpu(self, name: str, arguments: tuple[Any, ...]) -> int:
        if not self._session.initialised:
            return UNINITIALIZED
        try:
            gpu = self._gpu(arguments[0], name)
            if isinstance(gpu, FakeGpu) and name in NUMBERS:
                return put(arguments[1], ctypes.c_uint, NUMBERS[name](gpu))
            if isinstance(gpu, FakeGpu) and name in REASONS:
                return put(arguments[1], ctypes.c_ulonglong, gpu.clock_reasons)
            return GPU_CALLS[name](self._session, gpu, *arguments[1:])
        except Refused as refusal:
            return refusal.code

    def _gpu(self, handle: Any, name: str) -> FakeGpu | str:
        """Of the part of a GPU (MIG), its UUID."""
        address = ctypes.cast(handle, ctypes.c_void_p).value or 0
        gpus = self._session.driver.gpus
        if address >= FIRST_PART:
            index, part = divmod(address - FIRST_PART, 16)
            return gpus[index].mig_uuids[part]
        obey(gpus[address - FIRST_HANDLE], name)
        return gpus[address - FIRST_HANDLE]


class ErrorString:
    """The bindings set its result type, as on a function of C."""

    restype: Any = None

    def __call__(self, code: Any) -> bytes:
        return WORDS.get(whole(code), "Unknown Error").encode()


def _init(session: Session, _flags: Any = 0) -> int:
    session.initialised = session.driver.init_code == 0
    return session.driver.init_code


def _nvml_version(session: Session, out: Any, size: Any) -> int:
    library = session.driver.library or session.driver.version
    return put_text(out, size, f"{session.driver.cuda // 1000}.{library}")


def _handle(session: Session, index: Any, out: Any) -> int:
    gpus, number = session.driver.gpus, whole(index)
    if number >= len(gpus):
        return INVALID_ARGUMENT
    obey(gpus[number], "nvmlDeviceGetHandleByIndex_v2")
    return put(out, ctypes.c_void_p, FIRST_HANDLE + number)


def _handle_at(session: Session, bus_id: Any, out: Any) -> int:
    """By '0000:1B:00.0', or with the domain in eight digits as NVML itself writes it."""
    wanted = bus_id.value.decode().lower()[-12:]
    places = [gpu.bus_id.lower()[-12:] for gpu in session.driver.gpus]
    return _handle(session, places.index(wanted), out) if wanted in places else NOT_FOUND


LIBRARY_CALLS: dict[str, Callable[..., int]] = {
    "nvmlInitWithFlags": _init,
    "nvmlInit_v2": _init,
    "nvmlShutdown": lambda _session: SUCCESS,
    "nvmlSystemGetDriverVersion": lambda s, out, size: put_text(out, size, s.driver.version),
    "nvmlSystemGetNVMLVersion": _nvml_version,
    "nvmlSystemGetCudaDriverVersion": lambda s, out: put(out, ctypes.c_int, s.driver.cuda),
    "nvmlDeviceGetCount_v2": lambda s, out: put(out, ctypes.c_uint, len(s.driver.gpus)),
    "nvmlDeviceGetHandleByIndex_v2": _handle,
    "nvmlDeviceGetHandleByPciBusId_v2": _handle_at,
}
