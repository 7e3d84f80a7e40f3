"""The user's own rules, judged by what logs and journals show. Pure.

A line is reported where it was found. That one is missing is known only where lines have times; in
the folder of a run its journal says so, since the run looked at its clock.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from holdfast.analysis.logs.rule_matches import RuleMatches
from holdfast.analysis.logs.wreckage import LogLine, Wreckage
from holdfast.analysis.rules.rule import OwnRule, RanksAsked, Severity
from holdfast.findings import Culprit, Diagnosis, Evidence, RuleFinding
from holdfast.text import elapsed, exact_duration, ranks

CODE = "OWN"
"""where faults of the catalogue have HOLD and three digits"""
CONFIDENCE = {Severity.ERROR.value: 0.7, Severity.CAUSE.value: 0.97}
"""severities that are answers to the question what broke the job; others are context"""
QUOTED = 3


def judge(wreckage: Wreckage) -> tuple[RuleFinding, ...]:
    """In the order of the rules; a run's own sentences where its logs show no line."""
    seen = wreckage.rules
    found: list[RuleFinding] = []
    for rule in seen.rules:
        of_rule = [one for one in seen.matches if one.rule == rule.name]
        found += _lines(rule, of_rule)
        if rule.must_appear and seen.began is not None and seen.ended is not None:
            found += _absences(rule, of_rule, wreckage, seen.began, seen.ended)
    shown = {one.rule for one in found}
    return (*found, *(one for one in _told(wreckage) if one.rule not in shown))


def diagnoses(findings: Iterable[RuleFinding], wreckage: Wreckage) -> list[Diagnosis]:
    """Those whose severity makes them an answer. A 'cause' comes first, as its user says."""
    if wreckage.rules.ended_well:
        return []
    return [
        Diagnosis(
            code=CODE,
            slug=one.rule,
            confidence=CONFIDENCE[one.severity],
            culprit=Culprit(rank=one.ranks[0]) if len(one.ranks) == 1 else None,
            reason=f"{one.reason} (a rule of your own)",
            evidence=one.evidence,
            fix=one.fix,
            order=-1 if one.severity == Severity.CAUSE.value else wreckage_end(wreckage),
        )
        for one in findings
        if one.severity in CONFIDENCE
    ]


def wreckage_end(wreckage: Wreckage) -> int:
    """Behind everything that was seen: of two that are equally sure holdfast's own leads."""
    return max((one.order for one in wreckage.sightings), default=0) + 1


def _lines(rule: OwnRule, matches: Sequence[RuleMatches]) -> Iterator[RuleFinding]:
    told = [one for one in matches if one.count and rule.concerns(one.rank)]
    if not told:
        return
    count = sum(one.count for one in told)
    who = tuple(sorted({one.rank for one in told if one.rank is not None}))
    lines = f"{count} lines" if count > 1 else "one line"
    where = f" of {ranks(who)}" if who else ""
    reason = f"{rule.means}: {lines}{where}"
    values = [one.value for one in told if one.value is not None]
    if rule.reads_number and values:
        worst = max(values, key=abs)
        reason = f"{rule.means}: {worst:g} is {rule.exceeded(worst)} ({lines}{where})"
    quoted = [line for one in told for line in one.lines][:QUOTED]
    yield _finding(rule, "number" if rule.reads_number else "line", who, reason, quoted, count)


def _absences(
    rule: OwnRule, matches: Sequence[RuleMatches], wreckage: Wreckage, began: float, ended: float
) -> Iterator[RuleFinding]:
    late: dict[str, list[tuple[int | None, float, Sequence[LogLine]]]] = {}
    for rank in _asked(rule, wreckage):
        own = [one for one in matches if rank is None or one.rank == rank]
        times = sorted(at for one in own for at in one.times)
        if not times and own:
            return  # lines without a time of their own
        first = (times[0] if times else ended) - began
        gaps = itertools.pairwise([*times, ended])
        longest = max((later - earlier for earlier, later in gaps), default=0.0)
        if rule.within is not None and first > rule.within:
            late.setdefault("missing", []).append((rank, first, ()))
        if rule.every is not None and times and longest > rule.every:
            late.setdefault("stopped", []).append((rank, longest, own[0].lines[:1]))
    for what, found in late.items():
        who = tuple(rank for rank, _, _ in found if rank is not None)
        longest = max(seconds for _, seconds, _ in found)
        limit = exact_duration(rule.within if what == "missing" else rule.every)
        none = f"no line of {ranks(who)}" if who else "no line"
        told = f"{none} for {elapsed(longest)}, and {limit} are allowed"
        if what == "missing":
            told = f"{none} in the first {elapsed(longest)}, and it must come within {limit}"
        quoted = [line for _, _, lines in found for line in lines][:1]
        yield _finding(rule, what, who, f"{rule.means}: {told}", quoted, 0)


def _asked(rule: OwnRule, wreckage: Wreckage) -> list[int | None]:
    """Of ranks that are known by their lines; one that wrote nothing may have another log."""
    if rule.ranks is RanksAsked.ANY:
        return [None]
    return [one.rank for one in wreckage.ranks if one.first and rule.concerns(one.rank)]


def _finding(
    rule: OwnRule,
    what: str,
    who: tuple[int, ...],
    reason: str,
    quoted: Iterable[LogLine],
    count: int,
) -> RuleFinding:
    return RuleFinding(
        rule=rule.name,
        severity=rule.severity.value,
        what=what,
        ranks=who,
        reason=reason,
        count=count,
        fix=rule.fix,
        evidence=tuple(
            Evidence(quote=one.text, source=one.source, line=one.number, rank=one.rank)
            for one in quoted
        ),
    )


def _told(wreckage: Wreckage) -> Iterator[RuleFinding]:
    """The newest sentence of each rule and kind; an absence that ended is none."""
    newest = {(one.rule, one.what): (one, source, number) for one, source, number in
              wreckage.rules.told}  # fmt: skip
    for (rule, what), (record, source, number) in newest.items():
        back = newest.get((rule, "back"))
        if what == "back" or (what in ("missing", "stopped") and back and back[0].t >= record.t):
            continue
        said = record.quote or f"holdfast run said so (rule {rule})"
        rank = record.ranks[0] if len(record.ranks) == 1 else None
        yield RuleFinding(
            rule=rule,
            severity=record.severity,
            what=what,
            ranks=record.ranks,
            reason=record.reason,
            count=record.count,
            fix=record.fix,
            evidence=(Evidence(quote=said, source=source, line=number, rank=rank),),
        )
