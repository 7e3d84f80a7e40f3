"""The driver as one process has it open, and how its calls are found, refused and left hanging."""

from __future__ import annotations

import signal
from collections.abc import Callable

from tests.fakes.nvml.layouts import SUCCESS
from tests.fakes.nvml.state import FakeDriver, FakeGpu


class Session:
    """The driver as one process has it open."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.initialised = False
        self._looks: dict[tuple[int, int, int], int] = {}

    def grown(self, gpu: FakeGpu, link: int, counter: int) -> int:
        key = (gpu.minor, link, counter)
        looks = self._looks[key] = self._looks.get(key, -1) + 1
        return looks * gpu.links[link].grows.get(str(counter), 0)


Call = Callable[..., int]
GPU_CALLS: dict[str, Call] = {}


def answers(*names: str) -> Callable[[Call], Call]:
    def register(call: Call) -> Call:
        GPU_CALLS.update(dict.fromkeys(names, call))
        return call

    return register


class Refused(Exception):  # noqa: N818 - a return value
    def __init__(self, code: int) -> None:
        self.code = code


def obey(gpu: FakeGpu, name: str) -> None:
    if name in gpu.hangs:
        hang()
    code = gpu.refusals.get(name, gpu.refusals.get("*", SUCCESS))
    if code != SUCCESS:
        raise Refused(code)


def hang() -> None:
    """As a call does that waits in the kernel; only the end of the process helps."""
    while True:
        signal.pause()
