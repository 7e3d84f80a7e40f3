"""Every verdict shows what driver and kernel log say of the culprits' GPUs."""

from __future__ import annotations

from holdfast.analysis.scene.gpu import GpuEvent
from holdfast.analysis.scene.scene import Scene
from holdfast.run.watch import verdict
from tests.faults.gpu.failing_gpus import STALLED, crashed, gpus, xid
from tests.run.scenes import held_up


def quotes(scene: Scene) -> list[str]:
    found = verdict.judge(scene)
    assert found is not None
    return [evidence.quote for evidence in found.evidence]


def test_a_stall_shows_the_state_of_the_culprits_gpu_and_of_no_other() -> None:
    said = [quote for quote in quotes(STALLED) if quote.startswith("GPU ")]
    assert said == ["GPU 2: 100 % busy, 118 of 700 W, 61 GiB of 80 GiB in use"]


def test_an_error_of_the_program_keeps_its_name_and_shows_its_xid() -> None:
    scene = crashed(gpu_events=(xid(31, 2, rest="MMU Fault"),))
    found = verdict.judge(scene)
    assert found is not None
    assert found.slug == "cuda-assert"
    assert any("31, pid=4002" in quote for quote in quotes(scene))
    # its own load is over
    assert not any(quote.startswith("GPU ") for quote in quotes(scene))


def test_an_nvswitch_shows_whatever_the_fault() -> None:
    line = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 55"
    event = GpuEvent(number=24007, bus_id="0000:c1:00.0", line=line, switch=True)
    assert line in quotes(held_up({2: {}}, gpus=gpus(), gpu_events=(event,)))
