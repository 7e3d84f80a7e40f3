"""THE VERDICT: every fault looks at the scene, and the best-founded answer is taken. Pure.

Certain before notice; a rank, node or path to name before none; then the priority that each fault
states in its own file (`RunTraits`): what ended a rank, ranks that can never meet, ranks that are
late.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from holdfast import catalogue
from holdfast.analysis.collectives import worlds
from holdfast.analysis.job import (
    also_missing,
    pace,
    phrases,
    rank_gpus,
    ras_opinion,
    rdma_ports,
)
from holdfast.analysis.scene import exits, heard
from holdfast.analysis.scene.scene import Scene
from holdfast.catalogue import traits
from holdfast.fault import Broken, RunTraits
from holdfast.findings import Verdict

CHECKPOINTS = ("HOLD8", "HOLD407")
"""families, and disk-full: what the ranks report of their saves"""

Scope = Literal["world", "job", "nodes"]
"""of what a fault is asked: each world for itself, all ranks that are heard, or all nodes too"""


class Opinion(NamedTuple):
    verdict: Verdict | None
    broken: tuple[Broken, ...]


def judge(scene: Scene, *, timers_since: float = 0.0, standstill: bool = False) -> Verdict | None:
    """What stalls or ended the job, if anything did. Never raises.

    `standstill`: nothing moves, as is known from elsewhere; else the job's usual pace decides.
    """
    return consider(scene, timers_since=timers_since, standstill=standstill).verdict


def consider(scene: Scene, *, timers_since: float = 0.0, standstill: bool = False) -> Opinion:
    """The same, and which faces could not answer.

    Ranks on nodes that are not heard are shown to the faults of nodes only: the others judge the
    job without them.
    """

    def ask(part: Scene, *scopes: Scope) -> Opinion:
        return _consider(part, scopes, timers_since=timers_since, standstill=standstill)

    parts = worlds.parts(scene)
    if len(parts) == 1:
        of_worlds = [ask(parts[0], "world", "job")]
        of_all = []
    else:
        of_worlds = [ask(part, "world") for part in sorted(parts, key=_first_end)]
        of_all = [ask(heard.known_part(scene), "job")]
    if scene.nodes:
        of_all.append(ask(scene, "nodes"))
    return Opinion(
        _of_several(parts, _verdicts(of_all), _verdicts(of_worlds)),
        tuple(dict.fromkeys(one for opinion in (*of_worlds, *of_all) for one in opinion.broken)),
    )


def _consider(
    scene: Scene, scopes: Collection[Scope], *, timers_since: float, standstill: bool
) -> Opinion:
    ended = bool(exits.endings(scene))
    still = standstill or ended or pace.stalled(scene, timers_since=timers_since)
    answers = list(_ask(scene, scopes))
    fitting = [
        verdict
        for verdict in answers
        if isinstance(verdict, Verdict)
        and (still or not traits(verdict.slug).needs_stall)
        and not (still and traits(verdict.slug).needs_steps)
    ]
    broken = tuple(answer for answer in answers if isinstance(answer, Broken))
    best = min(fitting, key=_weight, default=None)
    if best and not ended and (traits(best.slug).needs_stall or is_stall(best)):
        best = ras_opinion.beside(scene, best)
    if best and best.ranks:
        best = _with_others(scene, best)
    return Opinion(best and _with_hardware(scene, _with_ties(scene, best)), broken)


def _with_others(scene: Scene, verdict: Verdict) -> Verdict:
    others = also_missing.of_scene(scene, verdict.ranks, one_of=verdict.one_of)
    if not others:
        return verdict
    return msgspec.structs.replace(
        verdict,
        reason=f"{verdict.reason}; the others wait for {phrases.who(scene, others)} as well",
        also=others,
        victims=tuple(rank for rank in verdict.victims if rank not in others),
    )


def _with_hardware(scene: Scene, verdict: Verdict) -> Verdict:
    """What driver and kernel log say of the culprits' GPUs, whatever the fault is called; and what
    RDMA ports did: a lost link in any case, which storage may need; errors only where ranks of
    several nodes wait for each other."""
    ports = rdma_ports.changed(scene, (*verdict.ranks, *verdict.victims))
    between_nodes = bool(scene.nodes) and traits(verdict.slug).needs_stall
    shown = [one for one in ports if one.is_down or between_nodes]
    found = [*rank_gpus.evidence(scene, verdict.ranks), *rdma_ports.evidence(shown)]
    seen = [one for one in found if one not in verdict.evidence]
    return msgspec.structs.replace(verdict, evidence=(*verdict.evidence, *seen))


def _with_ties(scene: Scene, verdict: Verdict) -> Verdict:
    """Ranks on other nodes that may have ended first are said to be such: neither culprits nor
    victims."""
    causes = {e.rank for e in exits.cause(scene)} if exits.tied(scene) else set()
    others = sorted(causes.difference(verdict.ranks))
    if not others or not causes.issuperset(verdict.ranks) or not verdict.ranks:
        return verdict
    ended = [phrases.how_it_ended(e) for e in exits.cause(scene) if e.rank in others]
    said = (
        f"{verdict.reason}; {phrases.who(scene, others)} ended at the same time, as far as the "
        f"clocks of two nodes show: which was first is not known"
    )
    return msgspec.structs.replace(verdict, reason=said, evidence=(*verdict.evidence, *ended))


def _verdicts(opinions: Iterable[Opinion]) -> list[Verdict]:
    return [opinion.verdict for opinion in opinions if opinion.verdict is not None]


def _first_end(scene: Scene) -> float:
    return min((ending.at for ending in exits.endings(scene)), default=math.inf)


def _of_several(
    parts: Sequence[Scene], of_all: Sequence[Verdict], of_worlds: Sequence[Verdict]
) -> Verdict | None:
    """What ended first is the cause of what ended later, whichever worlds they are in; while all
    live, the best-founded answer is taken. `of_worlds`: the world that lost a rank first, first."""
    if len(parts) > 1 and any(_first_end(part) < math.inf for part in parts):
        of_worlds = [v for v in of_worlds if v.ranks][:1] or of_worlds[:1]
    return min((*of_worlds, *of_all), key=_weight, default=None)


def _ask(scene: Scene, scopes: Collection[Scope]) -> Iterator[Verdict | Broken]:
    for entry in catalogue.entries():
        known = traits(entry.fault.slug)
        if known.from_history:  # decide.py asks it when a restart is due
            continue
        if _scope(known) not in scopes:
            continue
        for answer in entry.fault.ask_run(scene):
            # News of saves, resumes and losses stalls no rank: it is reported once.
            if isinstance(answer, Broken) or not is_news(answer):
                yield answer


def _scope(known: RunTraits) -> Scope:
    return "nodes" if known.about_nodes else "job" if known.whole_job else "world"


def is_news(verdict: Verdict) -> bool:
    return _tells_news(verdict.slug, verdict.code) and not verdict.certain


def _tells_news(slug: str, code: str) -> bool:
    """It is about what the ranks report, and not about what stalls or ends them."""
    return code.startswith(CHECKPOINTS) or traits(slug).is_news


def is_stall(verdict: Verdict) -> bool:
    """A notice that a rank does not come, or a path is broken: over once a step is taken."""
    known = traits(verdict.slug)
    return (
        verdict.names_a_culprit
        and not is_news(verdict)
        and not (known.never_acts or known.survives_steps or known.needs_steps)
    )


def news(scene: Scene) -> list[Verdict]:
    """What the catalogue makes of what the ranks reported. Never raises."""
    faults = [e.fault for e in catalogue.entries() if _tells_news(e.fault.slug, e.fault.code)]
    answers = [answer for fault in faults for answer in fault.ask_run(scene)]
    # `consider` owns up to a face that raised
    return [one for one in answers if isinstance(one, Verdict) and is_news(one)]


def _weight(verdict: Verdict) -> tuple[bool, bool, bool, int]:
    known = traits(verdict.slug)
    unnamed = not verdict.names_a_culprit and not known.no_culprit
    return not verdict.fatal, not verdict.certain, unnamed, known.priority
