"""A scheduler takes the machine: what Slurm does to the processes of a job."""

from __future__ import annotations

import contextlib
import signal
import time

import psutil

from holdfast.analysis.drill.injection import Preempt
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import Stage, wait_until


@carries_out(Preempt)
class PreemptCarrier(Carrier):
    def prepare(self, act: Preempt, stage: Stage) -> None:
        super().prepare(act, stage)
        stage.environment["SLURM_JOB_ID"] = "1"
        stage.environment["SLURM_JOB_END_TIME"] = str(int(time.time() + act.left))

    def inject(self, act: Preempt, stage: Stage) -> None:
        launcher = stage.launcher(stage.rehearsal.rank).process
        step = _step_of(launcher.pid)
        stage.release()  # its ranks may save and end
        _signal(step, signal.SIGTERM)
        if not wait_until(lambda: launcher.poll() is not None, seconds=act.grace):
            _signal(_step_of(launcher.pid) + step, signal.SIGKILL)


def _step_of(launcher: int) -> list[psutil.Process]:
    """Every process of the job: Slurm signals them all, not only the launcher."""
    with contextlib.suppress(psutil.NoSuchProcess):
        first = psutil.Process(launcher)
        return [first, *first.children(recursive=True)]
    return []


def _signal(processes: list[psutil.Process], number: int) -> None:
    for process in processes:
        # psutil compares the start time, too: another process with this number is left alone.
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
