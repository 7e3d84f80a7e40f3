"""Put a fake driver under the bindings of this process, or of one that is started."""

from __future__ import annotations

import ctypes
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tests.fakes.nvml.library import FakeLibrary
from tests.fakes.nvml.state import FakeDriver

if TYPE_CHECKING:
    import pytest

VARIABLE = "HOLDFAST_TEST_DRIVER"
OLD_BINDINGS = (
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetSramEccErrorStatus",
    "nvmlDeviceGetTemperatureV",
)
"""what nvidia-ml-py 12.535 lacks of the calls that holdfast makes"""
_ROOT = Path(__file__).parents[3]


def install(patch: pytest.MonkeyPatch, driver: FakeDriver, *, old_bindings: bool = False) -> None:
    """For this process and those that it forks."""
    bindings: Any = importlib.import_module("pynvml")
    patch.setattr(bindings, "nvmlLib", None)
    patch.setattr(bindings, "CDLL", lambda _name: FakeLibrary(driver))
    patch.setattr(bindings, "_nvmlGetFunctionPointer_cache", {})
    for name in OLD_BINDINGS if old_bindings else ():
        patch.delattr(bindings, name)


def environment(driver: FakeDriver) -> dict[str, str]:
    """For a process of its own, of any program that asks the driver by ctypes."""
    path = os.pathsep.join(
        [str(Path(__file__).with_name("site")), str(_ROOT), os.environ.get("PYTHONPATH", "")]
    )
    given = msgspec.json.encode(driver).decode()
    return {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep), VARIABLE: given}


def replace_library() -> None:
    """In such a process, before anything loads the library."""
    driver = msgspec.json.decode(os.environ[VARIABLE], type=FakeDriver)
    real = ctypes.CDLL

    class Loader(real):  # type: ignore[valid-type,misc]
        def __new__(cls, name: str | None = None, *arguments: Any, **named: Any) -> Any:
            if name == "libnvidia-ml.so.1":
                return FakeLibrary(driver)
            return super().__new__(cls)

    ctypes.CDLL = Loader  # type: ignore[misc]
