"""Which rank, at which step, and which drills: what a plan leaves open."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.analysis.drill.rehearsal import DrillPlan, JobShape, Rehearsal
from holdfast.errors import ConfigError

STEPS_SINCE = 3
"""after a checkpoint: enough to see that steps are repeated"""


class Chosen(NamedTuple):
    rehearsal: Rehearsal
    remark: str = ""
    """what the job is too short, or saves too little, to show"""


def choose(plan: DrillPlan, job: JobShape, *, at_store: bool = False) -> Chosen:
    """`at_store`: the fault is of the host that holds the store."""
    rank = _rank(job, at_store) if plan.rank is None else plan.rank
    if not 0 <= rank < job.ranks:
        raise ConfigError(f"rank {rank} is out of range for world_size {job.ranks}")
    if plan.at_step is not None:
        if not 0 <= plan.at_step <= job.steps:
            raise ConfigError(
                f"at_step must be between 0 and {job.steps}, the steps of the undisturbed job; "
                f"got {plan.at_step}"
            )
        step, remark = plan.at_step, ""
    else:
        step, remark = _step(job)
    return Chosen(Rehearsal(name=plan.fault, rank=rank, at_step=step, job=job), remark)


def _rank(job: JobShape, at_store: bool) -> int:  # noqa: FBT001
    """A middle one: rank 0 is special in most scripts, the last one in some samplers."""
    host = job.hosts[0 if at_store else -1]
    there = [rank for rank in range(job.ranks) if job.host_of(rank) == host]
    return 0 if at_store else there[len(there) // 2]


def _step(job: JobShape) -> tuple[int, str]:
    half = max(job.steps // 2, 1)
    if not job.saved_after:
        return half, "the undisturbed job saved no checkpoint that was seen"
    latest = job.steps - max(job.steps // 10, 1)
    usable = [(at, min(at + STEPS_SINCE, _next(job, at) - 1)) for at in job.saved_after]
    fits = [step for at, step in usable if at < step <= latest]
    if fits:
        return min(fits, key=lambda step: (abs(step - half), step)), ""
    close = [at for at in job.saved_after if at <= latest]
    if close:
        return min(close, key=lambda at: abs(at - half)), (
            "the job saves after every step, or is too short for a fault some steps after a save"
        )
    return half, f"the job's first checkpoint comes after step {job.saved_after[0]} of {job.steps}"


def _next(job: JobShape, at: int) -> int:
    """The step after which the next checkpoint comes."""
    return min((other for other in job.saved_after if other > at), default=job.steps + 1)


# --- which drills --------------------------------------------------------------------------------


class Offered(NamedTuple):
    """A drill that a fault has."""

    name: str
    quick: bool = False
    needs: tuple[str, ...] = ()


def choose_drills(
    offered: Sequence[Offered], asked: Iterable[str] = (), *, quick: bool = False
) -> list[str]:
    """Names, in the order in which they are run: quick ones first.

    `asked`: names of drills, slugs of faults (all their drills), or patterns ('checkpoint-*').
    Without any: the quick ones, or all.
    """
    patterns = list(asked)
    chosen = {one.name for one in offered if not patterns and (one.quick or not quick)}
    for pattern in patterns:
        chosen |= _matching(pattern, offered)
    order = sorted(offered, key=lambda one: (len(one.needs), not one.quick))
    return [one.name for one in order if one.name in chosen]


def _matching(pattern: str, offered: Sequence[Offered]) -> set[str]:
    names = [one.name for one in offered]
    slugs = {name: name.partition("/")[0] for name in names}
    found = {
        name
        for name in names
        if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(slugs[name], pattern)
    }
    if found:
        return found
    near = difflib.get_close_matches(pattern, [*names, *slugs.values()], n=3, cutoff=0.5)
    raise ConfigError(
        f"--faults: no drill is called {pattern!r}",
        hint=f"did you mean {' or '.join(dict.fromkeys(near))}?" if near else
        "`holdfast drill --list` shows them all",
    )  # fmt: skip
