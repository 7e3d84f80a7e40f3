"""Signals to a rank, to it and its children, or to the launcher."""

from __future__ import annotations

import contextlib
import os

import psutil

from holdfast.analysis.drill.injection import SignalProcess
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import Stage, is_running, wait_until

PASSED_ON = 2.0
"""seconds for a launcher to signal its ranks"""


@carries_out(SignalProcess)
class SignalCarrier(Carrier):
    def inject(self, act: SignalProcess, stage: Stage) -> None:
        rank = stage.rehearsal.rank
        of_rank = stage.pid(rank)
        pids = [stage.launcher(rank).process.pid if act.to == "launcher" else of_rank]
        if act.to == "rank and children":
            with contextlib.suppress(psutil.NoSuchProcess):
                pids += [child.pid for child in psutil.Process(pids[0]).children(recursive=True)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, act.number)
        if act.to == "launcher":
            # The rank waits until the launcher has passed it on: a fast job would be done by then.
            wait_until(lambda: not is_running(of_rank), seconds=PASSED_ON)
            stage.release()  # it may save, and end
            if stage.hosts:  # the job may go on without that launcher
                stage.lost.add(stage.launcher(rank).host)
