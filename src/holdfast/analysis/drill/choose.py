"""Which drills, on which rank, at which step: what was not asked for in so many words."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Mapping
from typing import Protocol

from holdfast.analysis.drill.rehearsal import DrillPlan, JobShape, Rehearsal
from holdfast.errors import ConfigError

STEPS_SINCE = 3
"""after a checkpoint: enough to see that steps are repeated"""

ENOUGH_SAVES = 2


class DrillTraits(Protocol):
    """What must be known of a drill (fault.Drill) to choose for it."""

    @property
    def name(self) -> str: ...
    @property
    def at_start(self) -> bool: ...


# --- which rank and step -------------------------------------------------------------------------


def rehearsal(plan: DrillPlan, drill: DrillTraits, job: JobShape) -> Rehearsal:
    """Raises ConfigError for a rank or step that the job does not have."""
    rank = _rank(drill.name, job) if plan.rank is None else plan.rank
    if not 0 <= rank < job.ranks:
        raise ConfigError(f"rank {rank} is out of range for world_size {job.ranks}")
    if plan.at_step is not None and not 0 <= plan.at_step <= job.steps:
        raise ConfigError(
            f"at_step must be between 0 and {job.steps}, the steps of the undisturbed job; got "
            f"{plan.at_step}"
        )
    step = plan.at_step
    if drill.at_start:
        step = 0
    elif step is None:
        step = _step(job)[0]
    return Rehearsal(name=drill.name, rank=rank, at_step=step, job=job)


def remark(job: JobShape) -> str:
    """What the job is too short, or saves too little, to show; '' when nothing."""
    return _step(job)[1]


def _rank(name: str, job: JobShape) -> int:
    """In the middle of the last host: rank 0 is special in most scripts. What happens to the store
    happens where it is."""
    if "store" in name:
        return 0
    there = [rank for rank in range(job.ranks) if job.host_of(rank) == job.hosts[-1]]
    return there[len(there) // 2]


def _step(job: JobShape) -> tuple[int, str]:
    """A few steps after the second checkpoint or a later one, before the next one, near the middle
    of the job; never in its last tenth."""
    half = max(job.steps // 2, 1)
    if not job.saved_after:
        return half, "the undisturbed job saved no checkpoint: it can only restart from step 0"
    latest = job.steps - max(job.steps // 10, 1)
    fits = [
        step
        for saved in job.saved_after
        for step in range(saved + 1, min(saved + STEPS_SINCE, _next_save(job, saved) - 1) + 1)
        if step <= latest
    ]
    if fits:
        before = {step: [saved for saved in job.saved_after if saved < step] for step in fits}
        # Some drills damage the newest checkpoint: there must be one to fall back to.
        return min(
            fits,
            key=lambda step: (
                before[step][-1] - step,
                len(before[step]) < ENOUGH_SAVES,
                abs(step - half),
                step,
            ),
        ), ""
    if early := [saved for saved in job.saved_after if saved <= latest]:
        step = min(early, key=lambda saved: abs(saved - half))
        return step, "the job saves after every step: no step is repeated after a restart"
    first = job.saved_after[0]
    return half, f"the first checkpoint that was seen comes after step {first} of {job.steps}"


def _next_save(job: JobShape, step: int) -> int:
    return min((other for other in job.saved_after if other > step), default=job.steps + 1)


# --- which drills --------------------------------------------------------------------------------


def names(
    offered: Mapping[str, bool], asked: Iterable[str] = (), *, everything: bool = False
) -> list[str]:
    """Which of the drills that there are, in the order in which they are run: quick ones first.

    `offered`: by name, whether it is a quick one. `asked`: names of drills, slugs of faults (all
    their drills), or patterns ('checkpoint-*'). Without any: the quick ones, or all.
    Raises ConfigError for a name that no drill has.
    """
    patterns = [word.strip() for words in asked for word in words.split(",") if word.strip()]
    if patterns:
        chosen = {name for pattern in patterns for name in _matching(pattern, offered)}
    else:
        chosen = {name for name, quick in offered.items() if quick or everything}
    return [name for name in sorted(offered, key=lambda name: not offered[name]) if name in chosen]


def _matching(pattern: str, offered: Iterable[str]) -> list[str]:
    slugs = {name: name.partition("/")[0] for name in offered}
    found = [
        name
        for name, slug in slugs.items()
        if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(slug, pattern)
    ]
    if found:
        return found
    near = difflib.get_close_matches(pattern, {*slugs, *slugs.values()}, n=3, cutoff=0.5)
    raise ConfigError(
        f"no drill is called {pattern!r}",
        hint=f"did you mean {' or '.join(near)}?"
        if near
        else f"there are: {', '.join(sorted(slugs))}",
    )
