"""A rank that may open no further file."""

from __future__ import annotations

import os
import resource

from holdfast.analysis.drill.host_acts import LimitOpenFiles
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import CannotInjectHere, Stage


@carries_out(LimitOpenFiles)
class OpenFilesCarrier(Carrier):
    def prepare(self, act: LimitOpenFiles, stage: Stage) -> None:  # noqa: ARG002 - as the others
        stage.order("open-files", waits=True)

    def inject(self, act: LimitOpenFiles, stage: Stage) -> None:  # noqa: ARG002
        pid = stage.pid(stage.rehearsal.rank)
        try:
            _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (_lowest_free(pid), hard))
        except PermissionError as why:
            raise CannotInjectHere(f"the limits of pid {pid} may not be changed: {why}") from why
        stage.release()


def _lowest_free(pid: int) -> int:
    """The number that its next open() would get: the limit is on numbers, not on how many."""
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    return next(number for number in range(len(taken) + 1) if number not in taken)
