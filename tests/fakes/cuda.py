"""A libcuda with one idle GPU, as ctypes shows it; any of its calls can fail or never return."""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Collection, Mapping
from typing import Any

from holdfast.system.cuda_driver import CudaDriver

NAMES = {
    2: b"CUDA_ERROR_OUT_OF_MEMORY",
    46: b"CUDA_ERROR_DEVICE_UNAVAILABLE",
    100: b"CUDA_ERROR_NO_DEVICE",
    214: b"CUDA_ERROR_ECC_UNCORRECTABLE",
    802: b"CUDA_ERROR_SYSTEM_NOT_READY",
    803: b"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    999: b"CUDA_ERROR_UNKNOWN",
}
UUID = bytes(range(16))
UUID_TEXT = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
BUS_ID = b"0000:3D:00.0"


class FakeCuda:
    """Fills what its arguments point to, as the driver does."""

    def __init__(
        self,
        *,
        failing: Mapping[str, int] | None = None,
        hanging: Collection[str] = (),
        lacking: Collection[str] = (),
        spoils: bool = False,
    ) -> None:
        """Args:
        failing: call -> the error it returns
        hanging: calls that never return
        lacking: calls that this library does not have
        spoils: what is read back from the GPU is not what was written
        """
        self._failing = dict(failing or {})
        self._hanging = hanging
        self._lacking = lacking
        self._spoils = spoils
        self._memory = b""
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in self._lacking:
            raise AttributeError(name)
        inner = getattr(type(self), f"_{name}", None)

        def call(*arguments: Any) -> int:
            self.called.append(name)
            while name in self._hanging:
                signal.pause()
            if name in self._failing:
                return self._failing[name]
            return int(inner(self, *arguments) or 0) if inner else 0

        return call

    def _cuDriverGetVersion(self, number: Any) -> None:  # noqa: N802 - CUDA's names
        number._obj.value = 13000

    def _cuDeviceGet(self, handle: Any, ordinal: int) -> None:  # noqa: N802
        handle._obj.value = ordinal

    def _cuDeviceGetUuid(self, raw: Any, _device: Any) -> None:  # noqa: N802
        ctypes.memmove(raw._obj, UUID, 16)

    def _cuDeviceGetPCIBusId(self, text: Any, _size: int, _device: Any) -> None:  # noqa: N802
        text.value = BUS_ID

    def _cuMemAlloc_v2(self, pointer: Any, _size: Any) -> None:  # noqa: N802
        pointer._obj.value = 0x7F0000000000

    def _cuMemcpyHtoD_v2(self, _where: Any, data: bytes, size: Any) -> None:  # noqa: N802
        self._memory = data[: size.value]

    def _cuMemcpyDtoH_v2(self, back: Any, _where: Any, size: Any) -> None:  # noqa: N802
        ctypes.memmove(back, self._memory, size.value)
        if self._spoils:
            back[17] = b"\xff"

    def _cuGetErrorName(self, code: int, text: Any) -> int:  # noqa: N802
        if code not in NAMES:
            return 1
        text._obj.value = NAMES[code]
        return 0


def driver(**kinds: Any) -> CudaDriver:
    library = FakeCuda(**kinds)
    return CudaDriver(load=lambda _name: library)
