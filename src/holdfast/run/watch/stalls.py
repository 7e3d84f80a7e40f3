"""What the watch remembers of stalls within an attempt: when to look, and what is worth saying.

The rules are in analysis/job (pace, notices); no I/O here.
"""

from __future__ import annotations

from holdfast.analysis.collectives import worlds
from holdfast.analysis.job import notices, pace
from holdfast.analysis.scene import stopped
from holdfast.analysis.scene.scene import Scene
from holdfast.catalogue import traits
from holdfast.findings import Verdict
from holdfast.run.watch import decide


class StallMemory:
    def __init__(self) -> None:
        self.notices = notices.Notices()
        self.new_attempt()

    def new_attempt(self) -> None:
        self.history = decide.StallHistory()
        self.best_step = 0.0
        self._since = 0.0
        self.notices.new_attempt()

    @property
    def timers_since(self) -> float:
        return self.history.timers_since

    def restart_timers(self, now: float) -> None:
        self.history = decide.StallHistory(timers_since=now)

    def may_be_wrong(self, scene: Scene) -> bool:
        # The others' processors run seconds ahead of their GPUs: a stop is seen before a stall.
        return (
            pace.stalled(scene, timers_since=self.timers_since)
            or bool(stopped.stopped_ranks(scene))
            or self._is_slow(scene)
        )

    def _is_slow(self, scene: Scene) -> bool:
        usual = pace.usual_step(scene)
        if usual and pace.steps(scene) >= pace.STEPS_TO_KNOW:
            self.best_step = min(self.best_step or usual, usual)
        return pace.slowed(scene, self.best_step)

    def pause_between_looks(self, scene: Scene) -> float:
        self._since = self._since or scene.now
        return pace.pause_between_looks(scene.now - self._since, habit=self._is_habit(scene))

    def _is_habit(self, scene: Scene) -> bool:
        habit = pace.is_habit(scene, timers_since=self.timers_since)
        return habit and not stopped.stopped_ranks(scene)

    def is_over(self) -> None:
        self._since = 0.0
        self.notices.over()

    def remember(self, scene: Scene, found: Verdict | None) -> None:
        self.history = decide.remember(scene.now, scene, found, self.history)

    def worth_saying(self, scene: Scene, found: Verdict) -> bool:
        if traits(found.slug).survives_steps:
            return self.notices.is_due_while_steps_continue(scene.now, found)
        scene = worlds.part_of(scene, found.ranks)  # steps of another world mean nothing here
        if self._is_habit(scene) and not found.certain:
            return False
        place = notices.place_of(scene, found)
        since = self._stalled_since(scene)
        waited = decide.waited_for(scene.now, scene, found, self.history)
        lasted = max(scene.now - since, waited)
        return self.notices.is_due(found, place, since=since, lasted=lasted)

    def named(self, found: Verdict | None) -> Verdict | None:
        """The same, if it was said of the stall that the job is in."""
        return found if found and self.notices.has_said(found) else None

    def _stalled_since(self, scene: Scene) -> float:
        """Where no steps are seen, since its ranks wait at the same positions."""
        if pace.steps(scene):
            return pace.last_progress(scene, timers_since=self.timers_since)
        return self.history.stalled_since or scene.started_at
