"""What to do about a verdict: `(now, scene, verdict, policy, history) -> decision`. Pure.

Conclusive evidence acts at once: an end, a mismatch, a stopped process. A rank that merely sits
somewhere may be saving; there patience decides:

- `--patience S` ends such a wait after S seconds. Before the first step it ends only ranks that
  show no activity for that long: imports and compilation take what they take.
- By default nothing is ended before the first step. Later a rank without any activity gets
  60 s, or ten times the longest pause the job came back from; one that is at work, or inside the
  kernel, is only talked about.
- No wait outlives 80 % of its timeout: torch would abort at 100 %, and blame a victim.
- A slow rank is never a reason.

Restarts: an attempt that got on for ten minutes is progress and costs nothing; every other failed
attempt uses up one of `--max-restarts`. The same failure at the same step twice in a row stops
the job at once (`restart-loop`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast import text
from holdfast.analysis.collectives import waits
from holdfast.analysis.job import pace, stall
from holdfast.analysis.scene import exits, stopped
from holdfast.analysis.scene.scene import Failure, Policy, RankView, Scene
from holdfast.catalogue import traits
from holdfast.faults.launchers import restart_loop
from holdfast.findings import Verdict

LATE = 1.0
"""seconds our own loop may be late before all clocks start again"""
TIME_FOR_THE_CAUSE = 2.0
"""seconds after the first end in which the cause may still show: a rank that raises takes time to
unwind, and its victims may be seen first"""
NO_LIFE = 60.0
TIMES_LONGEST_PAUSE = 10


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    action: Literal["go-on", "hold", "restart", "stop"]
    """hold: a rank has ended, the cause is not clear yet, leave the others alone for a moment"""
    reason: str
    verdict: Verdict | None = None
    """the one acted on; `restart-loop` when that is why the job stops"""


class StallHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What must be remembered from one look to the next, within an attempt."""

    timers_since: float = 0.0
    """when all clocks were started again"""
    stalled_since: float = 0.0
    """since when the same ranks are waited for at the same positions; 0 when none are"""
    stalled_at: tuple[object, ...] = ()


def remember(
    now: float, scene: Scene, verdict: Verdict | None, history: StallHistory, *, late: float = 0.0
) -> StallHistory:
    """The history after this look; `late`: by how much our own loop came too late."""
    if late > LATE:
        return StallHistory(timers_since=now)
    if verdict is None or verdict.certain or not verdict.victims:
        return msgspec.structs.replace(history, stalled_since=0.0, stalled_at=())
    seen = waits.analyse(scene)
    places = tuple((w.rank, w.group, w.sequence) for w in seen.waits if w.rank in verdict.victims)
    held = (verdict.ranks, places, pace.steps(scene))
    if held == history.stalled_at:
        return history
    return msgspec.structs.replace(history, stalled_since=now, stalled_at=held)


def decide(
    now: float, scene: Scene, verdict: Verdict | None, policy: Policy, history: StallHistory
) -> Decision:
    ended = exits.endings(scene)
    if verdict is not None and verdict.fatal:
        return Decision(action="stop", reason=verdict.reason, verdict=verdict)
    if ended:
        unclear = verdict is None or not verdict.ranks
        if unclear and now - ended[0].at < TIME_FOR_THE_CAUSE:
            return Decision(action="hold", reason="a rank has ended; its cause is not clear yet")
        return _act(scene, verdict, policy, why="")
    if verdict is None:
        return Decision(action="go-on", reason="nothing is wrong")
    if verdict.certain:
        return _act_if_still_so(now, scene, verdict, policy, history)
    return _be_patient(now, scene, verdict, policy, history)


def _act_if_still_so(
    now: float, scene: Scene, verdict: Verdict, policy: Policy, history: StallHistory
) -> Decision:
    """A process that was stopped together with us is not frozen."""
    since = stopped.stopped_since(scene, verdict.ranks)
    if since is not None and now - max(since, history.timers_since) < stopped.LONG_ENOUGH:
        return Decision(action="go-on", reason="the machine slept: all timers have been reset")
    return _act(scene, verdict, policy, why="")


def _be_patient(
    now: float, scene: Scene, verdict: Verdict, policy: Policy, history: StallHistory
) -> Decision:
    go_on = Decision(action="go-on", reason=verdict.reason, verdict=verdict)
    if traits(verdict.slug).never_acts or not verdict.ranks:
        return go_on
    waited = _waited(now, scene, verdict, history)
    limit = stall.END_AT * _timeout(scene, verdict)
    if limit and waited >= limit:
        why = f"the wait has lasted {text.elapsed(waited)}, 80 % of the group's timeout"
        return _act(scene, verdict, policy, why=why)
    culprits = [scene.rank(rank) for rank in verdict.ranks]
    silent = min(now - max(v.alive_at, history.timers_since) for v in culprits)
    started = pace.steps(scene) > 0
    if policy.patience is not None:
        if (waited if started else min(waited, silent)) >= policy.patience:
            why = f"waited longer than --patience {policy.patience:g}"
            return _act(scene, verdict, policy, why=why)
        return go_on
    allowed = max(NO_LIFE, TIMES_LONGEST_PAUSE * scene.longest_pause)
    if started and silent >= allowed and not any(_in_kernel(v) for v in culprits):
        why = f"no activity for {text.elapsed(silent)}"
        return _act(scene, verdict, policy, why=why)
    return go_on


def _in_kernel(view: RankView) -> bool:
    return view.activity is not None and view.activity.state in "DTt"


def _waited(now: float, scene: Scene, verdict: Verdict, history: StallHistory) -> float:
    """For how long its victims have surely waited: since we saw them do so, or since they entered
    that collective, whichever is longer."""
    seen = waits.analyse(scene)
    entered = [scene.evidence_at - w.seconds for w in seen.waits if w.rank in verdict.victims]
    since = min([history.stalled_since or now, *entered])
    return now - max(since, history.timers_since)


def _timeout(scene: Scene, verdict: Verdict) -> float:
    seen = waits.analyse(scene)
    own = [w.timeout for w in seen.waits if w.rank in verdict.victims and w.timeout]
    told = [v.beat.group_timeout for v in scene.ranks if v.beat and v.beat.group_timeout]
    return min(own or told, default=0.0)


# --- restart or stop ---------------------------------------------------------------------------


def failure_of(scene: Scene, verdict: Verdict | None) -> Failure:
    """How this attempt ended, to be kept in the next attempts' `Scene.failures`."""
    steps = pace.steps(scene)
    until = pace.last_progress(scene) if steps else scene.now
    return Failure(
        slug=verdict.slug if verdict else "",
        ranks=verdict.ranks if verdict else (),
        # After a resume the same fault comes sooner in the attempt, at the same step of the job.
        step=steps and scene.checkpoints.base + steps,
        lasted=until - scene.started_at,
    )


def _act(scene: Scene, verdict: Verdict | None, policy: Policy, *, why: str) -> Decision:
    failures = (*scene.failures, failure_of(scene, verdict))
    said = f"{why}: " if why else ""
    loop = restart_loop.same_failure_twice(msgspec.structs.replace(scene, failures=failures))
    if loop and policy.max_restarts:
        return Decision(action="stop", reason=f"{said}{loop.reason}", verdict=loop)
    used = sum(failure.lasted < restart_loop.PROGRESS_SECONDS for failure in failures)
    if used > policy.max_restarts:
        left = (
            f"stopping: all {policy.max_restarts} restarts are used"
            if policy.max_restarts
            else "stopping (--max-restarts is 0)"
        )
        return Decision(action="stop", reason=f"{said}{left}", verdict=verdict)
    free = failures[-1].lasted >= restart_loop.PROGRESS_SECONDS
    count = (
        "restarting (not counted: the job made progress since the last one)"
        if free
        else (f"restarting ({used} of {policy.max_restarts})")
    )
    return Decision(action="restart", reason=f"{said}{count}", verdict=verdict)
