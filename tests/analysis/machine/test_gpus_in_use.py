from __future__ import annotations

from typing import Any

import pytest

from holdfast.analysis.machine import GpuHolder, MachineFacts, Unread
from holdfast.analysis.machine.gpus_in_use import why_leave_alone
from tests.faults.machines import a_machine, settings
from tests.faults.made_gpus import GIB, a_gpu, nvidia

TRAINING = GpuHolder(pid=4711, memory=40 * GIB, command="python train.py", user="kim")
DESKTOP = GpuHolder(pid=900, memory=90 << 20, command="/usr/lib/xorg/Xorg", user="root")
UNTOLD = GpuHolder(pid=4711, memory=None)


def machine(*holders: GpuHolder, **changes: Any) -> MachineFacts:
    """Two GPUs, of which the second is held."""
    return a_machine(nvidia=nvidia(a_gpu(0), a_gpu(1, holders=holders)), **changes)


@pytest.mark.parametrize("holder", [TRAINING, UNTOLD])
def test_a_gpu_that_a_program_uses_is_left_alone(holder: GpuHolder) -> None:
    assert "GPU 1" in why_leave_alone(machine(holder))
    assert "pid 4711" in why_leave_alone(machine(holder))


@pytest.mark.parametrize(
    "facts",
    [
        machine(),
        machine(DESKTOP),
        machine(TRAINING, settings=settings(CUDA_VISIBLE_DEVICES="0")),
        a_machine(nvidia=Unread(why="NVML hangs")),
        a_machine(nvidia=nvidia(present=False, gpus=())),
    ],
)
def test_a_gpu_that_is_free_or_not_this_jobs_is_no_reason(facts: MachineFacts) -> None:
    assert why_leave_alone(facts) == ""


def test_a_busy_gpu_is_in_use_whoever_holds_it() -> None:
    assert "GPU 0 is 97 % busy" in why_leave_alone(a_machine(nvidia=nvidia(a_gpu(0, busy=97))))
    assert why_leave_alone(a_machine(nvidia=nvidia(a_gpu(0, busy=3)))) == ""


def test_memory_that_an_invisible_process_holds_is_use() -> None:
    taken = a_gpu(0, memory_used=60 * GIB)
    assert "not visible here" in why_leave_alone(a_machine(nvidia=nvidia(taken)))
