"""Checkpoints are saved far too rarely, or far too often.

What you see   After a fault, hours of work are repeated; or training pauses for a noticeable part
               of the time because it saves again and again.
Why            Each save costs time, and each failure costs what was done since the last save. The
               sum is least near √(2 · cost of a save · mean time between failures). With n machines
               failures come n times as often, and each one discards the work of all n.
How to be sure holdfast compares the times of your checkpoints with that interval. Until it has
               seen this job's own failures it assumes one a day, and one in 264 days for every
               machine. `holdfast.checkpoint.cadence.advice(interval, cost, mtbf)` takes your own
               figures.
Fix            `holdfast.Checkpoint(…, every="auto")` measures the cost of a save and keeps the
               interval with the least expected loss; elsewhere, set the interval holdfast names.
Known limits   `holdfast check` sees files only: how long a save paused training is assumed from
               their size, so only `holdfast run` finds checkpoints that are saved too often. Both
               need at least three checkpoints.
Sources        https://doi.org/10.1145/361147.361115 (Young 1974)
               https://doi.org/10.1016/j.future.2004.11.016 (Daly 2006)
               https://arxiv.org/abs/2407.21783 (Llama 3, section 3.3.4: how often machines fail)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from holdfast.analysis.checkpoints import save_interval
from holdfast.analysis.machine import CheckpointItem, MachineFacts, checkpoint_items, known
from holdfast.analysis.scene.checkpoints import Saved
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD805",
    slug="checkpoint-cadence",
    traits=RunTraits(priority=630),
    related=("restart-from-zero", "checkpoint-not-atomic"),
)

ENOUGH = 3
"""checkpoints: of two, one may be the last of a run that just ended"""
NEWEST = 6
"""older ones may be the few of many that retention kept"""
ASSUMED_SPEED = 1e9
"""bytes a second: the files do not show how long a save paused training"""
LONG_ENOUGH = 600.0
"""seconds of an attempt: what shorter ones lose is not worth reporting"""
TOLERANCE = 2.0
"""an interval within this factor of the best one is never far off"""


@FAULT.check(needs=("checkpoints",))
def checkpoints_are_far_apart(facts: MachineFacts) -> Finding:
    """Only that: the files do not show how long a save paused training."""
    if not facts.plan.checkpoint_folders:
        return FAULT.does_not_apply(checkpoint_items.NO_FOLDER)
    series = _newest_series(known(facts.checkpoints))
    if len(series) < ENOUGH:
        return FAULT.does_not_apply(
            f"fewer than {ENOUGH} complete checkpoints in one folder: too few to measure the "
            "interval"
        )
    # Copied files may all have the same age.
    interval = max(1.0, median(older.age - newer.age for newer, older in pairwise(series)))
    cost = median(item.size for item in series) / ASSUMED_SPEED
    writing = median(item.seconds or 0.0 for item in series)
    mtbf = save_interval.mtbf(uptime=0.0, failures=0, machines=facts.plan.max_nodes)
    advice = save_interval.advice(interval, cost, mtbf, writing=writing)
    often = f"checkpoints are saved about every {save_interval.about(interval)}"
    seen = [
        Evidence(quote=f"{item.path}, {save_interval.about(item.age)} old", source=item.path)
        for item in series
    ]
    if not advice.far_off or interval < TOLERANCE * advice.best:
        return FAULT.ok(often, evidence=seen)
    return FAULT.note(
        often,
        reason=f"{advice.sentence}; the cost of a save and the failure rate of this job are "
        "assumptions",
        evidence=seen,
        fix=f"save every {save_interval.about(advice.best)}, or use "
        '`holdfast.Checkpoint(…, every="auto")`',
    )


def _newest_series(items: Sequence[CheckpointItem]) -> list[CheckpointItem]:
    """Complete ones of the kind and folder of the newest, newest first: one program's saves."""
    complete = checkpoint_items.complete(items)
    like = [
        item
        for item in complete
        if item.kind == complete[0].kind
        and os.path.dirname(item.path) == os.path.dirname(complete[0].path)
    ]
    return like[:NEWEST]


@FAULT.run
def interval_is_far_from_the_best(scene: Scene) -> Verdict | None:
    uptime = scene.now - scene.started_at
    saves = [saved for saved in scene.checkpoints.saves if saved.attempt == scene.attempt]
    if uptime < LONG_ENOUGH or len(saves) < ENOUGH:
        return None
    interval, pause, writing = typical_save(saves)
    if interval <= 0:  # the system's clock was set back
        return None
    mtbf = save_interval.mtbf(
        uptime=uptime + sum(failure.lasted for failure in scene.failures),
        failures=len(scene.failures),
        machines=len({view.host for view in scene.ranks}) or 1,
    )
    advice = save_interval.advice(interval, pause, mtbf, writing=writing)
    if not advice.far_off or 1 / TOLERANCE < interval / advice.best < TOLERANCE:
        return None
    return FAULT.verdict(
        advice.sentence,
        ranks=(),
        certain=False,
        fix=f'save about every {save_interval.about(advice.best)}, or use `every="auto"`',
        evidence=[
            Evidence(
                quote=f"step {saved.step}: paused training for "
                f"{save_interval.about(saved.stall)}, written in "
                f"{save_interval.about(saved.seconds)}",
                source=saved.path,
            )
            for saved in saves[-ENOUGH:]
        ],
    )


def typical_save(saves: Sequence[Saved]) -> tuple[float, float, float]:
    """Seconds between saves, seconds training paused, seconds of writing; medians."""
    return (
        median(later.at - earlier.at for earlier, later in pairwise(saves)),
        median(saved.stall for saved in saves),
        median(saved.seconds for saved in saves),
    )
