"""The fake driver answers NVIDIA's bindings as a real one did: one H200 given to a virtual
machine, driver 580.159.04, recorded call by call."""

from __future__ import annotations

import ctypes
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.nvml import profiles
from tests.fakes.nvml.install import install

RECORDED = json.loads(
    (Path(__file__).parents[2] / "fakes/nvml/recorded_h200.json").read_text(encoding="utf-8")
)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    install(monkeypatch, profiles.one_passed_through())
    bindings = importlib.import_module("pynvml")
    bindings.nvmlInit()
    return bindings


def ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """In the form of the recording."""
    try:
        return plain(getattr(nvml, name)(*arguments))
    except nvml.NVMLError as problem:
        return f"!{type(problem).__name__}: {problem}"


def plain(value: Any) -> Any:
    if isinstance(value, ctypes.Structure):
        names = [field[0] for field in value._fields_]
        value = {name: plain(getattr(value, name)) for name in names}
        for unused in ("pciDeviceId", "pciSubSystemId"):
            value.pop(unused, None)
        return value
    if isinstance(value, bytes):
        return value.decode()
    return list(value) if isinstance(value, (tuple, ctypes.Array)) else value


@pytest.mark.parametrize("name", RECORDED["calls"])
def test_a_call(nvml: Any, name: str) -> None:
    gpu = () if name.startswith("nvmlSystem") else (nvml.nvmlDeviceGetHandleByIndex(0),)
    assert ask(nvml, name, *gpu) == RECORDED["calls"][name]


@pytest.mark.parametrize("call", RECORDED["calls_with"])
def test_a_call_with_numbers(nvml: Any, call: str) -> None:
    name, *numbers = call.split()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert ask(nvml, name, gpu, *map(int, numbers)) == RECORDED["calls_with"][call]


@pytest.mark.parametrize("name", RECORDED["link_0"])
def test_a_link(nvml: Any, name: str) -> None:
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert ask(nvml, f"nvmlDeviceGet{name}", gpu, 0) == RECORDED["link_0"][name]


@pytest.mark.parametrize("name", RECORDED["fabric"])
def test_the_fabric_by_every_call_and_layout(nvml: Any, name: str) -> None:
    """The oldest call writes the oldest structure, whatever it was handed."""
    call, layout = name.split()
    answer, content = RECORDED["fabric"][name]
    info = getattr(nvml, f"c_nvml{layout}")()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert ask(nvml, f"nvmlDeviceGet{call}", gpu, ctypes.byref(info)) == answer
    assert plain(info) == content


def test_the_fields(nvml: Any) -> None:
    numbers = [int(number) for number in RECORDED["fields"]]
    for value in nvml.nvmlDeviceGetFieldValues(nvml.nvmlDeviceGetHandleByIndex(0), numbers):
        code, kind, unsigned, _ = RECORDED["fields"][str(value.fieldId)]
        assert value.nvmlReturn == code
        if code == 0:
            assert (value.valueType, value.value.ullVal) == (kind, unsigned)
