"""A real cgroup with a memory limit, and the kernel that ends what outgrows it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from holdfast.analysis.drill.host_acts import LimitMemory
from holdfast.drill.acts.memory_limit import MemoryLimitCarrier
from holdfast.drill.acts.registry import carrier_of
from holdfast.drill.stage import CannotInjectHere, Stage
from tests.drill.acts.stand_in import SECONDS, a_stage, gate_program, started

pytestmark = pytest.mark.lab
ACT = LimitMemory(room=32 << 20)
HOARD = gate_program("hoard = []\nwhile True: hoard.append(b'x' * (4 << 20))")
MODEST = gate_program("time.sleep(0.1)")


def prepared(folder: Path) -> tuple[Stage, MemoryLimitCarrier]:
    stage, carrier = a_stage(folder), carrier_of(ACT)
    assert isinstance(carrier, MemoryLimitCarrier)
    try:
        carrier.prepare(ACT, stage)
    except CannotInjectHere as why:
        pytest.skip(f"needs a cgroup of its own: {why}")
    return stage, carrier


def test_the_kernel_ends_the_rank_that_takes_more(tmp_path: Path) -> None:
    stage, carrier = prepared(tmp_path)
    with started(stage, HOARD) as rank:
        carrier.inject(ACT, stage)
        assert rank.wait(SECONDS) == -signal.SIGKILL
        assert carrier.cgroup.memory_kills() == 1
        assert stage.injected
    assert json.loads(stage.folder.order(0).read_text())["waits"] is True
    assert not Path(carrier.cgroup.path).exists()


def test_a_rank_that_takes_nothing_is_no_drill(tmp_path: Path) -> None:
    stage, carrier = prepared(tmp_path)
    with started(stage, MODEST), pytest.raises(CannotInjectHere, match="ended no process"):
        carrier.inject(ACT, stage)
    assert not Path(carrier.cgroup.path).exists()
