"""What `run` asks of the driver, by a fake of its library: there is no GPU here."""

from __future__ import annotations

import pytest

from holdfast.analysis.machine import Unread, known
from holdfast.analysis.scene.gpu import GpuLook
from holdfast.system import gpus
from tests.fakes.nvml import profiles
from tests.fakes.nvml.gpu_kinds import gpu
from tests.fakes.nvml.install import install
from tests.fakes.nvml.state import FakeDriver


def test_every_gpu_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = gpu(1, utilization=100, power=126_800, processes=((8, 5), (9, None)))
    busy.memory_used, busy.ecc_errors = 40 << 30, (7, 2, 7, 3)
    install(monkeypatch, FakeDriver(version="580.105.08", cuda=13000, gpus=(gpu(0), busy)))
    idle, seen = known(gpus.look(seconds=20))
    assert (idle.index, idle.busy, idle.pids, idle.uncorrected) == (0, 0, (), 0)
    assert seen == GpuLook(
        index=1,
        uuid=busy.uuid,
        busy=100,
        power=126.8,
        limit=700.0,
        pids=(8, 9),
        bus_id="0000:2c:00.0",
        memory=(40 << 30) + (480 << 20),
        memory_total=81559 << 20,
        uncorrected=2,
    )


def test_a_lost_gpu_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, profiles.lost_gpu())
    seen = known(gpus.look(seconds=20))
    assert [(one.index, one.lost) for one in seen if one.lost] == [(3, "GPU is lost")]
    assert len(seen) == 8


def test_a_gpu_that_hangs_is_named_and_the_others_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, profiles.hung_gpu("nvmlDeviceGetUtilizationRates"))
    seen = known(gpus.look(seconds=2))
    assert [(one.index, one.silent) for one in seen if one.silent] == [(5, "no answer within 2 s")]
    assert len(seen) == 8


def test_a_gpu_of_another_job_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, profiles.without_permission())
    assert [one.index for one in known(gpus.look(seconds=20))] == [0, 2, 3]


def test_a_gpu_in_parts_does_not_tell_how_busy_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, profiles.with_mig())
    (seen,) = known(gpus.look(seconds=20))
    assert (seen.busy, seen.limit) == (None, 400.0)


def test_a_driver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, profiles.hung_driver())
    answer = gpus.look(seconds=0.4)
    assert isinstance(answer, Unread)
    assert answer.timed_out


def test_a_driver_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, profiles.not_loaded())
    assert gpus.look(seconds=20) == Unread(why="Driver Not Loaded")


def test_without_the_package_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "installed", lambda: False)
    missing = gpus.look()
    assert isinstance(missing, Unread)
    assert "pip install nvidia-ml-py" in missing.why
