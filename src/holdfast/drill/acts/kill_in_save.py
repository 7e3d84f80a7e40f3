"""A rank is killed with a file of its checkpoint half written."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import psutil

from holdfast.analysis.drill.host_acts import KillDuringSave
from holdfast.drill import own_mounts
from holdfast.drill.acts import save_watch
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.acts.save_watch import Caught, SaveWatch
from holdfast.drill.own_mounts import OwnMounts
from holdfast.drill.stage import CannotInjectHere, Stage
from holdfast.system.fanotify import OpenGate
from holdfast.system.inotify import FolderWatch

QUIET_WITHIN = 10.0


@carries_out(KillDuringSave)
class KillDuringSaveCarrier(Carrier):
    def prepare(self, act: KillDuringSave, stage: Stage) -> None:
        if stage.checkpoints is None:
            raise CannotInjectHere("the job saves no checkpoints")
        self.folder = stage.checkpoints
        self.folder.mkdir(parents=True, exist_ok=True)
        self.mounts: OwnMounts | None = None
        with contextlib.suppress(CannotInjectHere):  # then without
            bind = ["--bind", str(self.folder), str(self.folder)]
            self.mounts = own_mounts.for_job(stage, bind)
        super().prepare(act, stage)

    def inject(self, act: KillDuringSave, stage: Stage) -> None:
        save_watch.pause_until_quiet(self.folder, seconds=QUIET_WITHIN)
        caught = self._catch(act, stage)
        if caught is None:
            step = stage.rehearsal.at_step
            raise CannotInjectHere(f"no save of rank {_or(act.ranks)} was caught after step {step}")
        ranks = _ranks(stage, act.ranks)
        rank = _rank_of(caught.pid, ranks)
        stage.injected = time.time()
        for pid in _tree(caught.pid if rank is None else ranks[rank]):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _catch(self, act: KillDuringSave, stage: Stage) -> Caught | None:
        launchers = [one.process for one in stage.launchers.values()]
        watch = SaveWatch(self.folder, goes_on=lambda: all(p.poll() is None for p in launchers))
        if gate := self._gate():
            ranks = _ranks(stage, act.ranks)
            try:
                stage.release()
                return watch.by_opening(gate, lambda pid: _rank_of(pid, ranks) is not None)
            finally:
                gate.close()
        folder = FolderWatch(str(self.folder))
        try:
            stage.release()
            return watch.by_writing(
                folder, lambda: [p for pid in _ranks(stage, act.ranks).values() for p in _tree(pid)]
            )
        finally:
            folder.close()

    def _gate(self) -> OpenGate | None:
        if self.mounts is None:
            return None
        with contextlib.suppress(OSError):
            return OpenGate(str(self.mounts.path(Path(self.folder))))
        return None


def _ranks(stage: Stage, ranks: tuple[int, ...]) -> dict[int, int]:
    return {rank: stage.pid(rank) for rank in ranks}


def _tree(pid: int) -> list[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]
    return []


def _rank_of(pid: int, ranks: dict[int, int]) -> int | None:
    """The one that is that process, or started it."""
    by_pid = {number: rank for rank, number in ranks.items()}
    with contextlib.suppress(psutil.NoSuchProcess):
        for one in (pid, *(parent.pid for parent in psutil.Process(pid).parents())):
            if one in by_pid:
                return by_pid[one]
    return None


def _or(ranks: tuple[int, ...]) -> str:
    return " or ".join(map(str, ranks))
