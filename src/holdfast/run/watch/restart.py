"""Restart the job, or stop it: from how its attempts ended and what the user allows. Pure.

- A typed `--max-restarts N` is a hard limit: every restart counts.
- Not typed, the job is restarted only where something was seen to resume it: a holdfast
  checkpoint, or optimizer state that was loaded. Then an attempt that got past the furthest step
  of all earlier ones is not counted, and three others are allowed.
- The same failure at the same step twice in a row stops the job, and so does a script that fails
  on all ranks alike before the first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.analysis.job import pace, start_failure
from holdfast.analysis.job.start_failure import StartFailure
from holdfast.analysis.scene import attempt_start
from holdfast.analysis.scene.checkpoints import ScriptSaved
from holdfast.analysis.scene.scene import Failure, Policy, Scene
from holdfast.faults.launchers import restart_loop
from holdfast.findings import Verdict

SAME_START = "stopping: no restart, because all ranks failed the same way before the first step"
PROGRESS = "restarting (not counted: the job made progress since the last one)"


class Restart(NamedTuple):
    allowed: bool
    reason: str
    loop: Verdict | None = None
    """`restart-loop`, when that is why the job stops"""
    start_failure: StartFailure | None = None
    """when that is why"""


def no_resume(saved: ScriptSaved | None) -> str:
    """Why it is not restarted, and what to type."""
    if saved:
        return (
            "stopping: no restart, because no optimizer state was seen to be loaded; the script "
            f"{saved.words}: if it loads that at start, --max-restarts 3"
        )
    return (
        "stopping: no restart, because nothing was seen that resumes this job (no holdfast "
        "checkpoint, no optimizer state loaded); to restart it anyway: --max-restarts 3"
    )


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


def consider(scene: Scene, verdict: Verdict | None, policy: Policy) -> Restart:
    if not policy.max_restarts:
        return Restart(False, "stopping (--max-restarts is 0)")
    if failed := start_failure.find(scene):
        return Restart(False, SAME_START, start_failure=failed)
    if not policy.restarts_typed and not attempt_start.can_resume(scene.checkpoints):
        return Restart(False, no_resume(scene.checkpoints.script_saved))
    failures = (*scene.failures, failure_of(scene, verdict))
    if loop := restart_loop.same_failure_twice(msgspec.structs.replace(scene, failures=failures)):
        return Restart(False, loop.reason, loop=loop)
    return within_budget(failures, policy)


def within_budget(failures: Sequence[Failure], policy: Policy) -> Restart:
    used = len(failures)
    if not policy.restarts_typed:
        if progressed(failures):
            return Restart(True, PROGRESS)
        used = sum(not progressed(failures[: n + 1]) for n in range(len(failures)))
    if used > policy.max_restarts:
        return Restart(False, f"stopping: all {policy.max_restarts} restarts are used")
    return Restart(True, f"restarting ({used} of {policy.max_restarts})")


def progressed(failures: Sequence[Failure]) -> bool:
    """Whether the last of these attempts got past the furthest step of those before it."""
    *earlier, last = failures
    return bool(earlier) and last.step > max(failure.step for failure in earlier)
