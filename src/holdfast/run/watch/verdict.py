"""THE VERDICT: every fault looks at the scene, and the best-founded answer is taken. Pure.

Certain before notice; a rank to name before none; then the priority that each fault states in
its own file (`RunTraits`): what ended a rank, ranks that can never meet, ranks that are late.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast import catalogue
from holdfast.analysis.job import pace
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.catalogue import traits
from holdfast.fault import Broken
from holdfast.findings import Verdict

CHECKPOINTS = "HOLD8"


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
    ended = bool(exits.endings(scene))
    still = standstill or ended or pace.stalled(scene, timers_since=timers_since)
    answers = list(_ask(scene))
    heard = [
        verdict
        for verdict in answers
        if isinstance(verdict, Verdict)
        and (still or not traits(verdict.slug).needs_stall)
        and not (still and traits(verdict.slug).needs_steps)
    ]
    broken = tuple(answer for answer in answers if isinstance(answer, Broken))
    return Opinion(min(heard, key=_weight, default=None), broken)


def _ask(scene: Scene) -> Iterator[Verdict | Broken]:
    for entry in catalogue.entries():
        if traits(entry.fault.slug).from_history:  # decide.py asks it when a restart is due
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
    unnamed = not verdict.ranks and not known.no_culprit
    return not verdict.fatal, not verdict.certain, unnamed, known.priority
