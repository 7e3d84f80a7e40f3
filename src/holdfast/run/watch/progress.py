"""How far the job is in this attempt, and how long its pauses between steps are. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from holdfast.analysis.job import pace
from holdfast.analysis.scene.scene import RankView

PAUSES = 32
"""between two steps that are remembered: enough to know a job's rollouts and evaluations"""


class JobProgress:
    """One job, all its attempts; the clock is passed in."""

    def __init__(self) -> None:
        self.longest_pause = 0.0
        self.pauses: deque[float] = deque(maxlen=PAUSES)
        self.group_timeout = 0.0
        """the shortest of the ranks' default groups when last seen; 0 when unknown"""
        self.new_attempt(0.0)

    def new_attempt(self, now: float) -> None:
        self.steps = self._steps_of_all = 0
        self._since = now

    def look(self, ranks: Iterable[RankView], now: float) -> bool:
        """Whether any rank took a step since the last look."""
        beats = [view.beat for view in ranks if view.beat]
        of_all = sum(beat.steps for beat in beats)
        furthest = max((beat.steps for beat in beats), default=0)
        # The sum alone falls when one process stands for the ranks again that it had started.
        if of_all <= self._steps_of_all and furthest <= self.steps:
            return False
        self._steps_of_all = max(of_all, self._steps_of_all)
        timeouts = [beat.group_timeout for beat in beats if beat.group_timeout]
        self.group_timeout = min(timeouts, default=self.group_timeout)
        if self.steps:
            self.longest_pause = max(self.longest_pause, self.idle(now))
            if self.idle(now) >= pace.SHORTEST:
                self.pauses.append(self.idle(now))
        self.steps, self._since = furthest, now
        return True

    def idle(self, now: float) -> float:
        """Seconds since the last step, or since the start of the attempt."""
        return now - self._since

    def restart_timers(self, now: float) -> None:
        self._since = now
