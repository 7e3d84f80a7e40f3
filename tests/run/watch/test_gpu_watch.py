"""GPUs compared with how they were when the ranks started. The driver is a stand-in: none here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.gpu import GpuLook
from holdfast.run.watch.gpu_watch import GpuWatch
from holdfast.system import gpus

HANGS = Unread(why="no answer within 1 s", timed_out=True)
REFUSES = Unread(why="NVMLError: Unknown Error")


def a_look(**changes: Any) -> GpuLook:
    look: dict[str, Any] = {"index": 0, "uuid": "GPU-7", "busy": 3, "power": 1.0, "limit": 2.0}
    return GpuLook(**{**look, **changes})


class Driver:
    """Gives these answers, one after the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: GpuLook | Unread) -> None:
        self.asked = 0
        self._answers: Iterator[GpuLook | Unread] = iter(answers)
        monkeypatch.setattr(gpus, "has_driver", lambda: True)
        monkeypatch.setattr(gpus, "look", self.look)

    def look(self, *, without: list[int]) -> tuple[GpuLook, ...] | Unread:
        self.asked += 1
        if without:
            return ()
        answer = next(self._answers)
        return answer if isinstance(answer, Unread) else (answer,)


def test_errors_count_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    Driver(monkeypatch, a_look(uncorrected=5), a_look(uncorrected=5), a_look(uncorrected=7))
    watch = GpuWatch()
    watch.begin()
    assert watch.look() == (a_look(uncorrected=5),)
    assert watch.look() == (a_look(uncorrected=7, new_uncorrected=2),)


def test_a_lost_gpu_keeps_its_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    Driver(monkeypatch, a_look(bus_id="b"), a_look(uuid="", busy=0, lost="GPU is lost"))
    watch = GpuWatch()
    watch.begin()
    assert watch.look() == (a_look(bus_id="b", lost="GPU is lost"),)


def test_a_gpu_that_hangs_is_asked_once_and_keeps_its_identity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = a_look(uuid="", busy=None, silent="no answer within 1 s")
    Driver(monkeypatch, a_look(bus_id="b"), silent, a_look(busy=9), a_look(busy=10))
    watch = GpuWatch()
    watch.begin()
    named = (a_look(bus_id="b", silent="no answer within 1 s"),)
    assert watch.look() == named
    assert watch.look() == named
    watch.begin()
    assert watch.look() == (a_look(busy=10),)


def test_a_driver_that_hangs_is_asked_once_in_an_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch, a_look(), HANGS, a_look())
    watch = GpuWatch()
    watch.begin()
    assert watch.look() == HANGS
    assert watch.look() == HANGS
    assert driver.asked == 2
    watch.begin()
    assert driver.asked == 3


def test_a_driver_that_refuses_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    Driver(monkeypatch, REFUSES, REFUSES, a_look(uncorrected=3))
    watch = GpuWatch()
    watch.begin()
    assert watch.look() == REFUSES
    assert watch.look() == (a_look(uncorrected=3),)


def test_without_a_driver_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(monkeypatch)
    monkeypatch.setattr(gpus, "has_driver", lambda: False)
    watch = GpuWatch()
    watch.begin()
    assert watch.look() is None
    assert driver.asked == 0
