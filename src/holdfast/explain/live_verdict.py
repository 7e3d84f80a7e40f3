"""The verdict of `holdfast run`, weighed against what its folder shows now. Pure.

The run saw more than any folder keeps: processes, their states, their sockets, in what order they
went. So its verdict leads. Only where it could do no better than a general name, while a log of
the same rank matches a pattern of one fault, that fault is the better name.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import text
from holdfast.analysis.logs.wreckage import LiveVerdict, RankRemains, Wreckage
from holdfast.catalogue import traits
from holdfast.fault import SHOWN
from holdfast.findings import Culprit, Diagnosis, Evidence

ACTED_ON = 0.92
STOPPED = 0.75
"""a stall that lasted when the run was told to stop: it may still have ended by itself; or one
whose rank is likely, no more"""
NOTICED = 0.5
SPECIFIC = 0.75
"""a diagnosis from a fault's own log pattern has more confidence than this"""


def weigh(wreckage: Wreckage, answers: Sequence[Diagnosis]) -> list[Diagnosis]:
    """The answers of the faults, and the run's own opinion among them."""
    said = _last(wreckage.live_verdicts)
    if said is None:
        return list(answers)
    beside = next((one for one in answers if one.slug == said.slug), None)
    opinion = _opinion(said, wreckage, beside)
    others = [one for one in answers if one is not beside]
    if not said.verdict:  # a notice: it takes its place among the others
        return [opinion, *others]
    better = [one for one in others if traits(said.slug).general and _is_better(one, said)]
    if not better:
        return [opinion, *map(_capped, others)]
    told = [_with_the_outcome(one, said) if one in better else one for one in others]
    return [_capped(opinion), *told]


def _is_better(answer: Diagnosis, said: LiveVerdict) -> bool:
    """A fault's own pattern, in the log of the same rank."""
    rank = answer.culprit.rank if answer.culprit else None
    own = answer.confidence > SPECIFIC and not traits(answer.slug).general
    return own and (rank is None or rank in said.ranks)


def _with_the_outcome(answer: Diagnosis, said: LiveVerdict) -> Diagnosis:
    if not said.afterwards:
        return answer
    return msgspec.structs.replace(answer, reason=f"{answer.reason}; {said.afterwards}")


def _capped(answer: Diagnosis) -> Diagnosis:
    return msgspec.structs.replace(answer, confidence=min(answer.confidence, NOTICED))


def _last(told: Sequence[LiveVerdict]) -> LiveVerdict | None:
    """The last verdict; without one the last notice."""
    verdicts = [one for one in told if one.verdict]
    return (verdicts or list(told))[-1] if told else None


def _confidence(said: LiveVerdict, beside: Diagnosis | None) -> float:
    if said.stopped or said.likely:
        return STOPPED
    return ACTED_ON if said.verdict else max(NOTICED, beside.confidence if beside else 0)


def _culprit(said: LiveVerdict, remains: RankRemains | None) -> Culprit | None:
    """A node as a whole, a rank, or the path between two nodes."""
    if traits(said.slug).about_nodes and said.hosts:
        return Culprit(
            host=said.hosts[0] if len(said.hosts) == 1 else "", what=text.names(said.hosts)
        )
    if said.ranks:
        return Culprit(
            rank=said.ranks[0],
            host=remains.host if remains else "",
            pid=remains.pid if remains else None,
        )
    return Culprit(what=f"path between {text.names(said.hosts)}") if len(said.hosts) > 1 else None


def _opinion(said: LiveVerdict, wreckage: Wreckage, beside: Diagnosis | None) -> Diagnosis:
    rank = said.ranks[0] if said.ranks else None
    remains = wreckage.rank(rank) if rank is not None else None
    line = said.line
    own = Evidence(quote=line.text, source=line.source, line=line.number, rank=rank)
    opinion = Diagnosis(
        code=said.code,
        slug=said.slug,
        confidence=_confidence(said, beside),
        culprit=_culprit(said, remains),
        reason=said.reason,
        victims=said.victims,
        evidence=(*(beside.evidence[: SHOWN - 1] if beside else ()), own),
        fix=said.fix or (beside.fix if beside else ""),
        next=beside.next if beside else "",
        ruled_out=beside.ruled_out if beside else (),
        unknown=beside.unknown if beside else (),
    )
    return _with_the_outcome(opinion, said)
