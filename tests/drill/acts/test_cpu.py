"""A rank with a small share of a core; programs that use all cores."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from holdfast.analysis.drill.host_acts import BurnCpu, LimitCpu
from holdfast.drill.acts.cpu_burners import BurnCpuCarrier
from holdfast.drill.acts.cpu_share import CpuShareCarrier
from holdfast.drill.acts.registry import carrier_of
from holdfast.drill.stage import CannotInjectHere, wait_until
from tests.drill.acts.stand_in import SECONDS, a_stage, gate_program, started

BUSY = gate_program("while True: pass")


@pytest.mark.lab
def test_a_rank_is_slowed_down_until_that_is_lifted(tmp_path: Path) -> None:
    stage, act = a_stage(tmp_path), LimitCpu()
    carrier = carrier_of(act)
    assert isinstance(carrier, CpuShareCarrier)
    try:
        carrier.prepare(act, stage)
    except CannotInjectHere as why:
        pytest.skip(f"needs a cgroup of its own: {why}")
    with started(stage, BUSY) as rank:
        carrier.inject(act, stage)
        stat = Path(carrier.cgroup.path, "cpu.stat")
        throttled = [line for line in stat.read_text().splitlines() if "nr_throttled" in line]
        assert wait_until(
            lambda: [x for x in stat.read_text().splitlines() if "nr_throttled" in x] != throttled,
            seconds=SECONDS,
        )
        carrier.lift(act, stage)
        assert psutil.Process(rank.pid).is_running()
    assert not Path(carrier.cgroup.path).exists()


def test_burners_end_with_the_fault(tmp_path: Path) -> None:
    stage, act = a_stage(tmp_path), BurnCpu(per_core=1)
    carrier = carrier_of(act)
    assert isinstance(carrier, BurnCpuCarrier)
    carrier.inject(act, stage)
    burners = [psutil.Process(one.pid) for one in carrier.burners]
    assert wait_until(lambda: all(b.cpu_times().user > 0 for b in burners), seconds=SECONDS)
    carrier.lift(act, stage)
    assert not any(burner.is_running() for burner in burners)
    assert stage.undo() == []
