"""Was the fault named, as what, and was any other rank or host blamed?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from holdfast import text
from holdfast.analysis.drill.case import CLOCKS
from holdfast.analysis.drill.injection import Injection
from holdfast.analysis.drill.outcome import Spoken
from holdfast.analysis.drill.rehearsal import JobShape

IMPLIED = frozenset({"cpu-contention", "slow-rank", "checkpoint-cadence", "restart-loop"})
"""may be said of any drill, since it makes them true: many ranks on few cores, restarts"""


class Naming(NamedTuple):
    noticed: float | None
    """seconds after the fault"""
    named: str
    right: bool
    early: Spoken | None
    """said before there was any fault"""
    wrong: Spoken | None
    """names another fault, or blames another rank or host"""
    of_loading: bool = False
    """nothing was said of the fault itself; `named` is what was said of a script that failed to
    load what the fault had left"""


def naming(
    said: Sequence[Spoken],
    injection: Injection,
    job: JobShape,
    fault_at: float,
    *,
    waits_since: float,
    fails_since: float = math.inf,
    also_true: frozenset[str],
) -> Naming:
    """`waits_since`: from then on the rank waits for the fault, and the others for the rank.
    `fails_since`: from then on the script does not get as far as a step, and what is said is about
    that. `also_true`: slugs that what became of the job makes true ('restart-from-zero')."""
    holdfast = job.runner == "holdfast"
    allowed = IMPLIED | also_true | set(injection.beside)
    right = [one for one in said if is_right(one, injection, job)]
    early = [
        one
        for one in said
        if one.t < waits_since and not (one in right and one.t >= waits_since - CLOCKS)
    ]
    later = [one for one in said if one not in early]
    about = [
        one for one in later if one in right or (one.slug not in allowed and one.t < fails_since)
    ]
    if not any(one in right for one in later):
        # What may be said beside the right name is, alone, a wrong one for the same rank or host.
        about += [one for one in later if _instead(one, injection)]
        about.sort(key=lambda one: one.t)
    of_loading = not about and any(one.slug not in allowed for one in later)
    if of_loading:
        about = [one for one in later if one.slug not in allowed]
    wrong = [one for one in about if one not in right and not of_loading]
    last = next((one for one in reversed(about) if one.kind == "verdict"), None)
    last = last or next(reversed(about), None)
    return Naming(
        noticed=max(about[0].t - fault_at, 0.0) if about else None,
        named=spoken(last) if last else "",
        right=any(one in right for one in later) and not (holdfast and (wrong or early)),
        early=early[0] if early and holdfast else None,
        wrong=wrong[0] if wrong and holdfast else None,
        of_loading=of_loading,
    )


def _instead(one: Spoken, injection: Injection) -> bool:
    culprits, hosts = set(injection.culprits or ()), set(injection.hosts)
    same = bool(culprits and set(one.ranks) == culprits) or bool(hosts & set(one.hosts))
    return one.slug in injection.beside and same and not injection.any_rank


def is_right(one: Spoken, injection: Injection, job: JobShape) -> bool:
    """Other launchers give no names: there the rank alone decides."""
    blameless = one.slug in injection.blameless and not one.ranks
    if one.slug not in injection.slugs and not blameless and (one.slug or job.runner == "holdfast"):
        return False
    if injection.any_rank or blameless:
        return True
    culprits = set(injection.culprits or ())
    if not culprits and not injection.hosts:
        return not one.ranks or job.runner != "holdfast" or len(one.ranks) == job.ranks
    if culprits and set(one.ranks) == culprits:
        return _hosts_fit(one, {job.host_of(rank) for rank in culprits} | set(injection.hosts), job)
    if not injection.hosts or not one.hosts:
        return False
    there = {rank for rank in range(job.ranks) if job.host_of(rank) in injection.hosts}
    return set(one.hosts) <= set(injection.hosts) and set(one.ranks) <= there | culprits


def _hosts_fit(one: Spoken, hosts: set[str], job: JobShape) -> bool:
    """One host is not named by what the lab calls it."""
    return len(job.hosts) == 1 or set(one.hosts) <= hosts


def spoken(one: Spoken) -> str:
    """'rank-killed: rank 2'."""
    whom = text.ranks(one.ranks) if one.ranks else text.names(one.hosts) if one.hosts else ""
    return ": ".join(part for part in (one.slug, whom) if part) or text.shorten(one.reason, 80)
