"""A rank that gets a small share of a core, so that the others wait for it at every step."""

from __future__ import annotations

import itertools
import statistics
import threading
import time

from holdfast.analysis.drill.host_acts import LimitCpu
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import CannotInjectHere, Stage
from holdfast.system.own_cgroup import CannotLimitError, OwnCgroup

LOOK_EVERY = 0.5
MOST, LEAST = 0.5, 0.01
SLOWER = 4.0
"""times the pace before: less may be noise"""
OF_PATIENCE = 0.25
"""a step takes at the most: one that takes as long as the patience is stuck"""


@carries_out(LimitCpu)
class CpuShareCarrier(Carrier):
    def __init__(self) -> None:
        self.over = threading.Event()
        self.steering: threading.Thread | None = None

    def prepare(self, act: LimitCpu, stage: Stage) -> None:
        try:
            self.cgroup = OwnCgroup("cpu")
        except CannotLimitError as why:
            raise CannotInjectHere(str(why)) from why
        stage.afterwards(self.cgroup.remove)
        stage.afterwards(self._stop)
        super().prepare(act, stage)

    def inject(self, act: LimitCpu, stage: Stage) -> None:
        job, rank = stage.rehearsal.job, stage.rehearsal.rank
        before = _pace(stage, rank)
        left = max(job.steps - stage.rehearsal.at_step, 1)
        wanted = max(act.seconds / left, SLOWER * before)
        self.wanted = min(wanted, OF_PATIENCE * job.patience)
        cores = min(max(before / self.wanted / 2, LEAST), MOST)
        self.cgroup.limit_cpu(cores)
        self.cgroup.add(stage.pid(rank))
        steering = threading.Thread(target=self._steer, args=(stage, rank, cores), daemon=True)
        self.steering = steering
        steering.start()
        stage.release()

    def lift(self, act: LimitCpu, stage: Stage) -> None:  # noqa: ARG002
        self._stop()
        self.cgroup.lift()

    def _steer(self, stage: Stage, rank: int, cores: float) -> None:
        """How much CPU time a step takes is not known before: less, until it is slow; more, where
        it would seem stuck; all, when its steps are done."""
        job = stage.rehearsal.job
        while not self.over.wait(LOOK_EVERY):
            if len(stage.attempts_of_rank(rank)[-1].steps) >= job.steps:
                return self.cgroup.lift()
            pace = _pace(stage, rank, newest=2, now=time.time())
            if pace > 2 * self.wanted:
                cores = min(2 * cores, MOST)
            elif pace < self.wanted / 2:
                cores = max(cores / 2, LEAST)
            self.cgroup.limit_cpu(cores)
        return None

    def _stop(self) -> None:
        self.over.set()
        if self.steering is not None:
            self.steering.join()


def _pace(stage: Stage, rank: int, newest: int = 10, now: float = 0.0) -> float:
    """Seconds of a step of that rank; as long as it has taken by now, where that is more."""
    own = stage.attempts_of_rank(rank)
    times = [step.t for step in own[-1].steps][-newest - 1 :] if own else []
    if not times[1:]:
        return 0.0
    taken = statistics.median(b - a for a, b in itertools.pairwise(times))
    return max(taken, now - times[-1])
