"""Ask every fault about the wreckage, and put the answers in order. Pure.

Only one thing broke the job, so the answers compete: highest confidence first; of two that are
equal the one seen earlier, since what comes later on one rank is mostly fallout. An answer behind
a certain one cannot be certain as well, unless both read the same line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.analysis.logs import also_missing, own_rules, ras_evidence
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Wreckage, quote
from holdfast.analysis.scene.secondary_errors import SURVIVED
from holdfast.catalogue import traits
from holdfast.explain import live_verdict
from holdfast.fault import Broken, Fault
from holdfast.findings import Diagnosis, Evidence, Grade, RuleFinding
from holdfast.text import ranks, shorten

RUNNER_UP = 0.5
"""the most that is left for another answer beside a certain one"""
RIVAL = 0.15
"""answers that are closer than that exclude each other and are both shown"""
FAINT = 0.1
"""an answer below this is noise"""
SHOWN = 5
ANOMALIES = 8


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    diagnoses: tuple[Diagnosis, ...] = ()
    """most likely first; none for a healthy run, and none where nothing is known"""
    failed: bool = False
    """something went wrong, whether or not a fault explains it"""
    traces: bool = True
    """there is something of a job in it: a rank, a launcher, a setting, a run"""
    anomalies: tuple[Evidence, ...] = ()
    """the earliest signs of trouble, where no answer is likely"""
    remarks: tuple[str, ...] = ()
    """what could not be read, and faces that raised"""
    rules: tuple[RuleFinding, ...] = ()
    """what the user's own rules found; those that are an answer are among the diagnoses too"""


def diagnose(wreckage: Wreckage, faults: Iterable[Fault]) -> Explanation:
    answers, bugs = _ask(wreckage, faults)
    own = own_rules.judge(wreckage)
    weighed = live_verdict.weigh(wreckage, answers)
    found = _in_order([*weighed, *own_rules.diagnoses(own, wreckage)])
    ordered = _with_others(wreckage, found)
    failed = bool(ordered) or _went_wrong(wreckage)
    likely = bool(ordered) and ordered[0].grade in (Grade.CERTAIN, Grade.LIKELY)
    unread = [f"{s.name}: {s.problem}" for s in wreckage.sources if s.problem]
    return Explanation(
        diagnoses=tuple(
            _located(wreckage, _with_survived(wreckage, _with_fallout(wreckage, ordered)))
        ),
        failed=failed,
        traces=_has_traces(wreckage),
        anomalies=() if likely or not failed else _earliest(wreckage),
        remarks=(*unread, *wreckage.rules.remarks, *bugs),
        rules=own,
    )


def _ask(wreckage: Wreckage, faults: Iterable[Fault]) -> tuple[list[Diagnosis], list[str]]:
    answers: list[Diagnosis] = []
    bugs: list[str] = []
    for fault in faults:
        best: Diagnosis | None = None
        for answer in fault.ask_explain(wreckage):
            if isinstance(answer, Broken):
                bugs.append(str(answer))
            elif best is None or answer.confidence > best.confidence:
                best = answer
        if best and best.confidence >= FAINT:
            answers.append(best)
    return answers, bugs


def _in_order(answers: Sequence[Diagnosis]) -> list[Diagnosis]:
    ordered = sorted(answers, key=lambda d: (-d.confidence, d.order, d.code))
    if not ordered:
        return []
    certain = [d for d in ordered if d.grade is Grade.CERTAIN]
    first = min(certain, key=lambda d: (d.order, -d.confidence)) if certain else ordered[0]
    rest = [d for d in ordered if d is not first and not _is_vaguer(d, first)]
    if certain:
        lowered = [d if _same_line(d, first) else _runner_up(d) for d in rest]
        rest = sorted(lowered, key=lambda d: (-d.confidence, d.order, d.code))
    return [first, *rest][:SHOWN]


def _same_line(one: Diagnosis, other: Diagnosis) -> bool:
    places = {(e.source, e.line) for e in other.evidence if e.line}
    return any((e.source, e.line) in places for e in one.evidence)


def _is_vaguer(one: Diagnosis, other: Diagnosis) -> bool:
    """'It raised an exception', beside what that exception was. One that is nearly as likely is
    another possibility."""
    if not traits(one.slug).general or traits(other.slug).general:
        return False
    return one.confidence < other.confidence - RIVAL and _same_line(one, other)


def _runner_up(diagnosis: Diagnosis) -> Diagnosis:
    return msgspec.structs.replace(diagnosis, confidence=min(diagnosis.confidence, RUNNER_UP))


def _went_wrong(wreckage: Wreckage) -> bool:
    told = any(s.role not in (Role.CONTEXT, Role.ADVICE) for s in wreckage.sightings)
    ended = any(e.code != 0 for e in wreckage.exits)
    raised = any(one.consequence != SURVIVED for one in wreckage.raised)
    return told or ended or raised or bool(ras_evidence.signs(wreckage))


def _has_traces(wreckage: Wreckage) -> bool:
    said = wreckage.sightings or wreckage.raised or wreckage.exits or wreckage.ranks
    known = wreckage.settings or wreckage.versions or wreckage.live_verdicts or wreckage.lost_runs
    kept = any(source.kind not in ("log", "unread") for source in wreckage.sources)
    return bool(said or known or wreckage.ras or wreckage.rules.matches or kept)


def _with_others(wreckage: Wreckage, ordered: list[Diagnosis]) -> list[Diagnosis]:
    """Two ranks may be missing at once, each for its own reason: the first answer names the other
    one too."""
    culprit = ordered[0].culprit if ordered else None
    if culprit is None or not (culprit.ranks or culprit.rank is not None):
        return ordered
    named = {*culprit.ranks, *([] if culprit.rank is None else [culprit.rank])}
    others = also_missing.of_wreckage(wreckage, named)
    first = ordered[0]
    if others:
        first = msgspec.structs.replace(
            first,
            reason=f"{first.reason}; {ranks(others)} did not come either",
            also=others,
            victims=tuple(rank for rank in first.victims if rank not in others),
        )
    doubts = also_missing.doubts(wreckage, named)
    first = msgspec.structs.replace(first, unknown=(*first.unknown, *doubts))
    return [first, *ordered[1:]]


def _with_fallout(wreckage: Wreckage, ordered: list[Diagnosis]) -> list[Diagnosis]:
    """The loudest lines are consequences: the first answer says which ranks wrote them."""
    if not ordered:
        return []
    first = ordered[0]
    blamed = first.culprit.rank if first.culprit else None
    waited = {
        s.rank
        for s in wreckage.sightings
        if s.role is Role.CASCADE and s.rank is not None and s.rank != blamed
    }
    if not waited:
        return ordered
    fallout = (
        f"the timeouts and lost connections of {ranks(waited)}: consequences, reported by ranks "
        "that waited"
    )
    victims = first.victims or tuple(sorted(waited))
    first = msgspec.structs.replace(first, ruled_out=(*first.ruled_out, fallout), victims=victims)
    return [first, *ordered[1:]]


def _with_survived(wreckage: Wreckage, ordered: list[Diagnosis]) -> list[Diagnosis]:
    """The first exception in a log is often a warning: say that it was seen, and why it is none."""
    survived = [one for one in wreckage.raised if one.consequence == SURVIVED]
    if not ordered or not survived:
        return ordered
    first, one = ordered[0], survived[0]
    if any((e.source, e.line) == (one.line.source, one.line.number) for e in first.evidence):
        return ordered
    more = f" (and {len(survived) - 1} more)" if len(survived) > 1 else ""
    words = (
        f"{shorten(one.line.text, 100)} at {one.line.source}:{one.line.number}{more}: the program "
        "continued after it"
    )
    first = msgspec.structs.replace(first, ruled_out=(*first.ruled_out, words))
    return [first, *ordered[1:]]


def _located(wreckage: Wreckage, diagnoses: Iterable[Diagnosis]) -> Iterator[Diagnosis]:
    """A rank is easier to find by its host and pid, where a line names them."""
    for one in diagnoses:
        rank = one.culprit.rank if one.culprit else None
        remains = wreckage.rank(rank) if rank is not None else None
        if one.culprit and remains:
            culprit = msgspec.structs.replace(
                one.culprit,
                host=one.culprit.host or remains.host,
                pid=one.culprit.pid or remains.pid,
            )
            yield msgspec.structs.replace(one, culprit=culprit)
        else:
            yield one


def _earliest(wreckage: Wreckage) -> tuple[Evidence, ...]:
    """The first trouble of each rank, its own before that of others."""
    told = [s for s in wreckage.sightings if s.role not in (Role.CONTEXT, Role.ADVICE)]
    told.sort(key=lambda s: (s.role is not Role.ROOT, s.order))
    firsts: dict[tuple[int | None, str], Evidence] = {}
    for one in (one for one in wreckage.raised if one.consequence != SURVIVED):
        firsts.setdefault(
            (one.rank, one.line.source),
            Evidence(
                quote=f"{one.kind}: {one.text}".strip(": "),
                source=one.line.source,
                line=one.line.number,
                rank=one.rank,
                host=one.line.host or None,
            ),
        )
    for sighting in told:
        firsts.setdefault((sighting.rank, sighting.line.source), quote(sighting))
    for end in (e for e in wreckage.exits if e.code != 0 and not e.teardown):
        line = end.line
        firsts.setdefault(
            (end.rank, line.source),
            Evidence(quote=line.text, source=line.source, line=line.number, rank=end.rank),
        )
    return (*firsts.values(), *ras_evidence.signs(wreckage))[:ANOMALIES]
