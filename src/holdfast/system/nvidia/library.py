"""NVML through NVIDIA's own bindings, whatever their age and the driver's.

Bindings may lack a newer call, the driver may not have it, the card may not support it, and this
user may not ask: all of that is None. That the GPU is gone is said by `GpuGone`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import Any

from holdfast.analysis.machine import Unread

PACKAGE = "nvidia-ml-py"
MISSING = Unread(why=f"{PACKAGE} is not installed beside holdfast: pip install {PACKAGE}")

# Return values of nvml.h. Not taken from the bindings: old ones lack the newer of them.
NO_PERMISSION = 4
NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
GPU_IS_LOST = 15
RESET_REQUIRED = 16
VERSION_MISMATCH = 18
GPU_NOT_FOUND = 28
WHY_GONE = {
    NO_PERMISSION: "no permission",
    GPU_IS_LOST: "lost",
    RESET_REQUIRED: "reset required",
    GPU_NOT_FOUND: "lost",
}
"""of a whole GPU that cannot be read; everything else is 'error'"""

_UNSIGNED_INT, _SIGNED_INT = 1, 5
"""kinds of a field's value in nvmlValueType_t; other whole numbers have 64 bits"""


class GpuGone(Exception):  # noqa: N818 - it is an answer, not an error
    """No question to this GPU will be answered any more."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code
        self.words = words

    @property
    def is_lost(self) -> bool:
        return WHY_GONE.get(self.code) == "lost"


def installed() -> bool:
    return importlib.util.find_spec("pynvml") is not None


def version_of_bindings() -> str:
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:  # an older package of the same module
        return ""


class Library:
    """The bindings' module, with one way to ask."""

    def __init__(self) -> None:
        import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415

        self._nvml: Any = pynvml

    def initialise(self) -> tuple[int, str]:
        """NVML's number and words for what went wrong; 0 and '' when it works."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as problem:
            return problem.value, _words(problem)
        return 0, ""

    def ask(self, name: str, *arguments: Any) -> Any:
        """What this call answers, or None."""
        call = getattr(self._nvml, name, None)
        if call is None:
            return None
        try:
            return call(*arguments)
        except self._nvml.NVMLError as problem:
            if problem.value in (GPU_IS_LOST, RESET_REQUIRED, GPU_NOT_FOUND):
                raise GpuGone(problem.value, _words(problem)) from None
            return None
        except UnicodeDecodeError:  # a name that is no text
            return None

    def newest(self, name: str, *arguments: Any) -> Any:
        """By the newest version of a call that bindings and driver both have."""
        for version in ("_v3", "_v2"):
            answer = self.ask(name + version, *arguments)
            if answer is not None:
                return answer
        return None

    def number(self, name: str, *arguments: Any) -> int | None:
        answer = self.ask(name, *arguments)
        return None if answer is None else int(answer)

    def handle(self, index: int) -> Any:
        """Of one GPU; the driver may start it for this, which takes seconds."""
        try:
            return self._nvml.nvmlDeviceGetHandleByIndex(index)
        except self._nvml.NVMLError as problem:
            raise GpuGone(problem.value, _words(problem)) from None

    def fields(self, gpu: Any, wanted: list[tuple[int, int]]) -> dict[tuple[int, int], int]:
        """Whole numbers by field and scope (a link's number, else 0); what is not told is left
        out."""
        values = self.ask("nvmlDeviceGetFieldValues", gpu, wanted)
        told = {}
        for key, value in zip(wanted, values or (), strict=False):
            if value.nvmlReturn == 0:
                told[key] = _whole(value)
        return told


def _words(problem: Any) -> str:
    """As nvidia-smi says it; the bindings have words of their own for this one."""
    mismatch = problem.value == VERSION_MISMATCH
    return "Driver/library version mismatch" if mismatch else str(problem)


def _whole(field: Any) -> int:
    if field.valueType == _SIGNED_INT:  # old bindings have no member for it
        low = int(field.value.uiVal)
        return low - (1 << 32) if low >> 31 else low
    return int(field.value.uiVal if field.valueType == _UNSIGNED_INT else field.value.ullVal)
