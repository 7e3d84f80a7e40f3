"""What the driver's library says, by a stand-in for that library: there is no GPU here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.analysis.machine import Unread, known
from holdfast.analysis.scene.gpu import GpuLook
from holdfast.system import gpus

LIBRARY = """
import os, time
from types import SimpleNamespace
class NVMLError(Exception): pass
def nvmlInit(): {init}
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(gpu): return f"GPU-{{gpu}}"
def nvmlDeviceGetUtilizationRates(gpu): return SimpleNamespace(gpu=100 * gpu)
def nvmlDeviceGetPowerUsage(gpu):
    if gpu: return 126_800
    raise NVMLError
def nvmlDeviceGetEnforcedPowerLimit(gpu): return 700_000
NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0
def nvmlDeviceGetTotalEccErrors(gpu, kind, when): return 4 + kind + when
def nvmlDeviceGetMemoryInfo(gpu): return SimpleNamespace(used=5, total=80)
def nvmlDeviceGetPciInfo(gpu): return SimpleNamespace(busId=b"00000000:3D:00.0")
def nvmlDeviceGetComputeRunningProcesses(gpu): return [SimpleNamespace(pid=7 + gpu)]
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    return tmp_path / "pynvml.py"


def test_every_gpu_is_described(library: Path) -> None:
    library.write_text(LIBRARY.format(init="pass"))
    both: Any = {
        "limit": 700.0,
        "bus_id": "00000000:3D:00.0",
        "memory": 5,
        "memory_total": 80,
        "uncorrected": 5,
    }
    assert gpus.look(seconds=20) == (
        GpuLook(index=0, uuid="GPU-0", busy=0, power=0.0, pids=(7,), **both),
        GpuLook(index=1, uuid="GPU-1", busy=100, power=126.8, pids=(8,), **both),
    )


def test_a_lost_gpu_is_an_answer(library: Path) -> None:
    lost = "raise NVMLError('GPU is lost')"
    library.write_text(LIBRARY.format(init="pass") + f"def nvmlDeviceGetUUID(gpu): {lost}\n")
    first, _ = known(gpus.look(seconds=20))
    assert (first.index, first.lost) == (0, "GPU is lost")


def test_a_driver_that_hangs_is_not_waited_for(library: Path) -> None:
    library.write_text(LIBRARY.format(init="time.sleep(600)"))
    answer = gpus.look(seconds=0.2)
    assert isinstance(answer, Unread)
    assert answer.timed_out


def test_a_driver_that_is_not_there_is_said(library: Path) -> None:
    library.write_text(LIBRARY.format(init="raise NVMLError('Driver Not Loaded')"))
    assert gpus.look(seconds=20) == Unread(why="NVMLError: Driver Not Loaded")


def test_without_the_package_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert gpus.look() is gpus.MISSING
