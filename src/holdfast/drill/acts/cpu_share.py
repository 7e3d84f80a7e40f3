"""A rank that gets a small share of a core, so that the others wait for it at every step."""

from __future__ import annotations

import itertools
import statistics
import threading

from holdfast.analysis.drill.host_acts import LimitCpu
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import CannotInjectHere, Stage
from holdfast.system.own_cgroup import CannotLimitError, OwnCgroup

LOOK_EVERY = 2.0
START, LEAST = 0.25, 0.01
SLOWER = 4.0
"""times the pace before: less may be noise"""


@carries_out(LimitCpu)
class CpuShareCarrier(Carrier):
    def __init__(self) -> None:
        self.over = threading.Event()
        self.tightening: threading.Thread | None = None

    def prepare(self, act: LimitCpu, stage: Stage) -> None:
        try:
            self.cgroup = OwnCgroup("cpu")
        except CannotLimitError as why:
            raise CannotInjectHere(str(why)) from why
        stage.afterwards(self.cgroup.remove)
        stage.afterwards(self._stop)
        super().prepare(act, stage)

    def inject(self, act: LimitCpu, stage: Stage) -> None:
        rank = stage.rehearsal.rank
        before = _pace(stage, rank)
        left = max(stage.rehearsal.job.steps - stage.rehearsal.at_step, 1)
        self.wanted = max(act.seconds / left, SLOWER * before)
        self.cgroup.limit_cpu(START)
        self.cgroup.add(stage.pid(rank))
        self.tightening = threading.Thread(target=self._tighten, args=(stage, rank), daemon=True)
        self.tightening.start()
        stage.release()

    def lift(self, act: LimitCpu, stage: Stage) -> None:  # noqa: ARG002
        self._stop()
        self.cgroup.lift()

    def _tighten(self, stage: Stage, rank: int) -> None:
        """How much CPU time a step takes is not known before: less and less, until it is slow."""
        cores = START
        while not self.over.wait(LOOK_EVERY) and cores > LEAST:
            if _pace(stage, rank, newest=3) < self.wanted:
                cores /= 2
                self.cgroup.limit_cpu(cores)

    def _stop(self) -> None:
        self.over.set()
        if self.tightening is not None:
            self.tightening.join()


def _pace(stage: Stage, rank: int, newest: int = 10) -> float:
    """Seconds of a step of that rank."""
    own = [one for one in stage.attempts() if one.began.rank == rank]
    times = [step.t for step in own[-1].steps][-newest - 1 :] if own else []
    return statistics.median(b - a for a, b in itertools.pairwise(times)) if times[1:] else 0.0
