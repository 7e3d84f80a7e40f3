"""Checkpoints are saved far too seldom, or far too often.

What you see   After a fault hours of work are done again; or the training stands still for a
               noticeable part of the time because it saves again and again.
Why            Each save costs time, and each failure costs what was done since the last save. The
               sum is least near √(2 · cost of a save · mean time between failures). With n machines
               failures come n times as often, and each one throws away the work of all n.
How to be sure holdfast compares the times of your checkpoints with that interval. Until it has
               seen this job's own failures it reckons with one a day, and one in 264 days for every
               machine; `advice(interval, cost, mtbf)` of `holdfast.checkpoint.cadence` takes your
               own figures.
Fix            `holdfast.Checkpoint(…, every="auto")` measures the cost of a save and keeps the
               interval where the expected loss is least; elsewhere set the interval it names.
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
from holdfast.analysis.machine import CheckpointItem, MachineFacts, known
from holdfast.analysis.scene.checkpoints import Saved
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Evidence, Finding, Verdict

FAULT = Fault(code="HOLD805", slug="checkpoint-cadence", traits=RunTraits(priority=630))

ENOUGH = 3
"""checkpoints: of two, one may be the last of a run that just ended"""
NEWEST = 6
"""those before may have been kept for good, one of many"""
SPEED = 1e9
"""bytes a second, assumed: how long a save held the training up is not told by its files"""
SETTLED = 600.0
"""seconds of an attempt: what shorter ones lose is not worth a word"""
SEVERAL = 2.0
"""an interval within this factor of the best one is never far off"""


@FAULT.check(needs=("checkpoints",))
def saved_far_too_seldom(facts: MachineFacts) -> Finding:
    """Only that: how long a save held the training up cannot be seen on files."""
    if not facts.plan.checkpoint_folders:
        return FAULT.does_not_apply("no checkpoint folder was named: add --ckpt DIR")
    series = _newest_series(known(facts.checkpoints))
    if len(series) < ENOUGH:
        return FAULT.does_not_apply(
            f"fewer than {ENOUGH} whole checkpoints beside each other: how often they are saved "
            "cannot be told"
        )
    # Files copied here by somebody may all have one age.
    interval = max(1.0, median(older.age - newer.age for newer, older in pairwise(series)))
    cost = median(item.size for item in series) / SPEED
    writing = median(item.seconds or 0.0 for item in series)
    mtbf = save_interval.mtbf(uptime=0.0, failures=0, machines=facts.plan.max_nodes)
    advice = save_interval.advice(interval, cost, mtbf, writing=writing)
    often = f"checkpoints are saved about every {save_interval.about(interval)}"
    seen = [
        Evidence(quote=f"{item.path}, {save_interval.about(item.age)} old", source=item.path)
        for item in series
    ]
    if not advice.far_off or interval < SEVERAL * advice.best:
        return FAULT.ok(often, evidence=seen)
    return FAULT.note(
        often,
        reason=f"{advice.sentence}; what a save costs and how often this job fails is assumed",
        evidence=seen,
        fix=f"save every {save_interval.about(advice.best)}, or with "
        'holdfast.Checkpoint(…, every="auto")',
    )


def _newest_series(items: Sequence[CheckpointItem]) -> list[CheckpointItem]:
    """Whole ones of the kind and folder of the newest, newest first: one program's saves."""
    whole = sorted(
        (item for item in items if not item.problem and item.kind != "temporary"),
        key=lambda item: item.age,
    )
    like = [
        item
        for item in whole
        if item.kind == whole[0].kind
        and os.path.dirname(item.path) == os.path.dirname(whole[0].path)
    ]
    return like[:NEWEST]


@FAULT.run
def far_from_the_best(scene: Scene) -> Verdict | None:
    uptime = scene.now - scene.started_at
    saves = [saved for saved in scene.kept.saves if saved.attempt == scene.attempt]
    if uptime < SETTLED or len(saves) < ENOUGH:
        return None
    interval, stall, writing = habit(saves)
    if interval <= 0:  # the clock was set back
        return None
    mtbf = save_interval.mtbf(
        uptime=uptime + sum(failure.lasted for failure in scene.failures),
        failures=len(scene.failures),
        machines=len({view.host for view in scene.ranks}) or 1,
    )
    advice = save_interval.advice(interval, stall, mtbf, writing=writing)
    if not advice.far_off or 1 / SEVERAL < interval / advice.best < SEVERAL:
        return None
    return FAULT.verdict(
        advice.sentence,
        ranks=(),
        certain=False,
        fix=f'save about every {save_interval.about(advice.best)}; every="auto" does so',
        evidence=[
            Evidence(
                quote=f"step {saved.step}: stood still {save_interval.about(saved.stall)}, "
                f"written in {save_interval.about(saved.seconds)}",
                source=saved.path,
            )
            for saved in saves[-ENOUGH:]
        ],
    )


def habit(saves: Sequence[Saved]) -> tuple[float, float, float]:
    """How far apart, how long the training stood still, how long each was written."""
    return (
        median(later.at - earlier.at for earlier, later in pairwise(saves)),
        median(saved.stall for saved in saves),
        median(saved.seconds for saved in saves),
    )
