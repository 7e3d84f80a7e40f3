"""When is it worth a look? Pure: the clock is in the scene.

A look costs a few milliseconds and acts on nothing, so it may come early; but it should not come
at every evaluation of a healthy job either. What is usual is learnt from the job itself.
"""

from __future__ import annotations

from holdfast.analysis.collectives import worlds
from holdfast.analysis.scene.scene import RankView, Scene

SHORTEST = 2.0
"""seconds without a step that are never worth a look, however short the steps are"""
TIMES_USUAL = 8
STEPS_TO_KNOW = 3
"""steps after which the job's pace is known"""
START = 10.0
"""seconds: before the pace is known; imports and the first compilation take as long"""
SILENCE = 3.0
"""seconds in which none of a rank's counters moved: it waits, sleeps, or is stopped"""
LONG = 60.0
"""seconds without a step after which we look even when all ranks seem busy: waiting NCCL ranks
keep a core busy"""
SLOWER = 2.0
"""times the pace it once had"""
LOOK_AGAIN = 2.0
"""seconds between two looks at a continuing stall, at first"""
LOOK_AT_LEAST = 60.0
"""seconds between them in the end"""


HABIT = 1.5
"""times the second longest of the last pauses that the job came back from: one may be chance"""


def pause_between_looks(held_up: float, *, habit: bool = False) -> float:
    """It may last for days, as a job without an optimizer does: looks grow rarer. A pause that is
    this job's habit (a rollout, an evaluation) is looked at rarely from the start."""
    return LOOK_AT_LEAST if habit else min(max(LOOK_AGAIN, held_up / 10), LOOK_AT_LEAST)


def is_habit(scene: Scene, *, timers_since: float = 0.0) -> bool:
    """Whether the job has come back by itself from pauses like this one before."""
    if len(scene.pauses) < 2:
        return False
    waits_since = [last_progress(p, timers_since=timers_since) for p in _that_may_stall(scene)]
    quiet = scene.now - min(waits_since, default=scene.now)
    return quiet <= HABIT * sorted(scene.pauses)[-2]


def last_progress(scene: Scene, *, timers_since: float = 0.0) -> float:
    """When any rank last took a step; the start before the first one."""
    steps = [view.beat.step_at for view in scene.ranks if view.beat is not None]
    return max([scene.started_at, timers_since, *steps])


def steps(scene: Scene) -> int:
    """The most any rank has taken in this attempt; 0 may mean that they cannot be seen."""
    return max((view.beat.steps for view in scene.ranks if view.beat is not None), default=0)


def usual_step(scene: Scene) -> float:
    """Seconds, the slowest rank's; 0 when unknown."""
    return max((view.beat.usual_step for view in scene.ranks if view.beat is not None), default=0.0)


def normal_pause(scene: Scene, step: float) -> float:
    """Seconds without a step that mean nothing in a job that takes `step` seconds for one."""
    shortest = SHORTEST if steps(scene) >= STEPS_TO_KNOW else START
    return max(shortest, TIMES_USUAL * step)


def stalled(scene: Scene, *, timers_since: float = 0.0) -> bool:
    """Whether the job, or a world of it, has been without progress for longer than is its habit.

    `timers_since`: when all clocks were started again, because the machine slept or starved.
    """
    return any(_stalled(part, timers_since=timers_since) for part in _that_may_stall(scene))


def _that_may_stall(scene: Scene) -> list[Scene]:
    """Its worlds with a living rank. Where there are several, no rank waits for one alone, unless
    that one misses peers."""
    parts = worlds.parts(scene)
    return [
        part
        for part in parts
        if any(view.death is None for view in part.ranks)
        and (len(part.ranks) > 1 or len(parts) == 1 or _misses_peers(part.ranks[0]))
    ]


def _misses_peers(alone: RankView) -> bool:
    return bool(alone.beat and alone.beat.claim and alone.beat.claim.world_size > 1)


def _stalled(scene: Scene, *, timers_since: float) -> bool:
    quiet = scene.now - last_progress(scene, timers_since=timers_since)
    if quiet <= normal_pause(scene, usual_step(scene)):
        return False
    if steps(scene) >= STEPS_TO_KNOW:
        return True
    return quiet > LONG or any(_silent(scene, view, timers_since) for view in scene.ranks)


def slowed(scene: Scene, best: float) -> bool:
    """Whether steps continue, but at less than half the best pace seen (`best`: seconds a step)."""
    now = usual_step(scene)
    return best > 0 and now >= SLOWER * best and now - best >= 0.02


def _silent(scene: Scene, view: RankView, timers_since: float) -> bool:
    return view.death is None and scene.now - max(view.alive_at, timers_since) > SILENCE
