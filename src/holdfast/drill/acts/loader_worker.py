"""A worker of a rank's DataLoader is killed."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import psutil

from holdfast.analysis.drill.host_acts import KillLoaderWorker
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import CannotInjectHere, Stage

TORCHS_NAME = "pt_data_worker"
"""that torch gives its workers, since 2.7"""


@carries_out(KillLoaderWorker)
class LoaderWorkerCarrier(Carrier):
    def inject(self, act: KillLoaderWorker, stage: Stage) -> None:  # noqa: ARG002
        rank = stage.rehearsal.rank
        workers = loader_workers(stage.pid(rank))
        if not workers:
            raise CannotInjectHere(f"rank {rank} has no DataLoader workers (num_workers=0)")
        workers[0].send_signal(signal.SIGKILL)
        stage.release()


def loader_workers(pid: int) -> list[psutil.Process]:
    """By torch's name, else forked: they have their parent's command line."""
    with contextlib.suppress(psutil.NoSuchProcess):
        rank = psutil.Process(pid)
        children = rank.children()
        named = [child for child in children if _name(child.pid) == TORCHS_NAME]
        return named or [child for child in children if child.cmdline() == rank.cmdline()]
    return []


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""
