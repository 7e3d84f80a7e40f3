"""THE VERDICT: every fault looks at the scene, and the best-founded answer is taken. Pure.

Certain before notice; a rank, node or path to name before none; then the priority that each fault
states in its own file (`RunTraits`): what ended a rank, ranks that can never meet, ranks that are
late.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast import catalogue
from holdfast.analysis.collectives import worlds
from holdfast.analysis.job import pace
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.catalogue import traits
from holdfast.fault import Broken
from holdfast.findings import Verdict

CHECKPOINTS = ("HOLD8", "HOLD407")
"""families, and disk-full: what the ranks report of their saves"""


class Opinion(NamedTuple):
    verdict: Verdict | None
    broken: tuple[Broken, ...]


def judge(scene: Scene, *, timers_since: float = 0.0, standstill: bool = False) -> Verdict | None:
    """What stalls or ended the job, if anything did. Never raises.

    `standstill`: nothing moves, as is known from elsewhere; else the job's usual pace decides.
    """
    return consider(scene, timers_since=timers_since, standstill=standstill).verdict


def consider(scene: Scene, *, timers_since: float = 0.0, standstill: bool = False) -> Opinion:
    """The same, and which faces could not answer."""
    parts = worlds.parts(scene)
    several = len(parts) > 1
    opinions = [
        _consider(part, whole_job=False if several else None, timers_since=timers_since,
                  standstill=standstill)
        for part in sorted(parts, key=_first_end)
    ]  # fmt: skip
    if not several:
        return opinions[0]
    of_all = _consider(scene, whole_job=True, timers_since=timers_since, standstill=standstill)
    return Opinion(
        _of_several(parts, of_all.verdict, [opinion.verdict for opinion in opinions]),
        tuple(dict.fromkeys(one for opinion in (*opinions, of_all) for one in opinion.broken)),
    )


def _consider(
    scene: Scene, *, whole_job: bool | None, timers_since: float, standstill: bool
) -> Opinion:
    ended = bool(exits.endings(scene))
    still = standstill or ended or pace.stalled(scene, timers_since=timers_since)
    answers = list(_ask(scene, whole_job=whole_job))
    heard = [
        verdict
        for verdict in answers
        if isinstance(verdict, Verdict)
        and (still or not traits(verdict.slug).needs_stall)
        and not (still and traits(verdict.slug).needs_steps)
    ]
    broken = tuple(answer for answer in answers if isinstance(answer, Broken))
    return Opinion(min(heard, key=_weight, default=None), broken)


def _first_end(scene: Scene) -> float:
    return min((ending.at for ending in exits.endings(scene)), default=math.inf)


def _of_several(
    parts: Sequence[Scene], of_all: Verdict | None, of_worlds: Sequence[Verdict | None]
) -> Verdict | None:
    """What ended first is the cause of what ended later, whichever worlds they are in; while all
    live, the best-founded answer is taken. `of_worlds`: the world that lost a rank first, first."""
    heard = [verdict for verdict in of_worlds if verdict is not None]
    if any(_first_end(part) < math.inf for part in parts):
        heard = [v for v in heard if v.ranks][:1] or heard[:1]
    return min((*heard, *([of_all] if of_all else [])), key=_weight, default=None)


def _ask(scene: Scene, *, whole_job: bool | None) -> Iterator[Verdict | Broken]:
    """`whole_job`: only the faults that are asked of all worlds at once, or only the others."""
    for entry in catalogue.entries():
        known = traits(entry.fault.slug)
        if known.from_history:  # decide.py asks it when a restart is due
            continue
        if whole_job is not None and known.whole_job != whole_job:
            continue
        for answer in entry.fault.ask_run(scene):
            # News of saves and resumes stalls no rank: it is reported once.
            if isinstance(answer, Broken) or not is_checkpoint_news(answer):
                yield answer


def is_checkpoint_news(verdict: Verdict) -> bool:
    return verdict.code.startswith(CHECKPOINTS) and not verdict.certain


def is_stall(verdict: Verdict) -> bool:
    """A notice that a rank does not come: over once a step is taken."""
    known = traits(verdict.slug)
    return (
        bool(verdict.ranks)
        and not is_checkpoint_news(verdict)
        and not (known.never_acts or known.survives_steps or known.needs_steps)
    )


def checkpoint_news(scene: Scene) -> list[Verdict]:
    """What the catalogue makes of what the ranks reported of their checkpoints. Never raises."""
    family = (e.fault for e in catalogue.entries() if e.fault.code.startswith(CHECKPOINTS))
    answers = [answer for fault in family for answer in fault.ask_run(scene)]
    # `consider` owns up to a face that raised
    return [one for one in answers if isinstance(one, Verdict) and is_checkpoint_news(one)]


def _weight(verdict: Verdict) -> tuple[bool, bool, bool, int]:
    known = traits(verdict.slug)
    unnamed = not verdict.names_a_culprit and not known.no_culprit
    return not verdict.fatal, not verdict.certain, unnamed, known.priority
