"""Signals to a rank, to it and its children, or to the launcher."""

from __future__ import annotations

import contextlib
import os

import psutil

from holdfast.analysis.drill.injection import SignalProcess
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import Stage


@carries_out(SignalProcess)
class SignalCarrier(Carrier):
    def inject(self, act: SignalProcess, stage: Stage) -> None:
        rank = stage.rehearsal.rank
        if act.to == "launcher":
            pids = [stage.launcher(rank).process.pid]
            if stage.hosts:  # the job may go on without it
                stage.lost.add(stage.launcher(rank).host)
            stage.release()  # its ranks may save and end
        else:
            pids = [stage.pid(rank)]
        if act.to == "rank and children":
            with contextlib.suppress(psutil.NoSuchProcess):
                pids += [child.pid for child in psutil.Process(pids[0]).children(recursive=True)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, act.number)
