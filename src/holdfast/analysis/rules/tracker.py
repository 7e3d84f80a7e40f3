"""Lines that rules matched, and the time -> what is said about a running job. Pure.

A rule speaks at most once a minute, then every two, four, … minutes: what 512 ranks write at the
same time is one notice. Nothing here ends a job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from holdfast.analysis.rules.rule import OwnRule, RanksAsked, RuleSet
from holdfast.text import elapsed, ranks

GATHER = 1.0
"""seconds after a line in which the same one of other ranks is waited for"""
AGAIN = 60.0
"""seconds before the second notice of a rule's lines; then each time they double"""
AGAIN_MOST = 3600.0

What = Literal["line", "number", "missing", "stopped", "back"]


class RuleHit(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a rule matched; `count` where it stands for several."""

    rule: str
    rank: int
    at: float
    line: str
    value: float | None = None
    exceeded: str = ""
    """'above 100': the number that was read is"""
    count: int = 1


class RuleNotice(msgspec.Struct, frozen=True, kw_only=True):
    rule: str
    severity: str
    what: What
    """a line, or the number in one; no line came, or no more; it came after all"""
    ranks: tuple[int, ...]
    """that wrote it, or are missing; () where any rank would do, and none did"""
    reason: str
    quote: str = ""
    count: int = 0
    fix: str = ""


class RuleTracker:
    """One job, all its attempts."""

    def __init__(self, rules: RuleSet) -> None:
        self._states = {rule.name: _RuleState(rule) for rule in rules.rules}

    def begin(self, now: float) -> None:
        """A new attempt begins."""
        self._states = {name: _RuleState(one.rule, now) for name, one in self._states.items()}

    def saw(self, hit: RuleHit) -> None:
        state = self._states.get(hit.rule)
        if state and state.rule.concerns(hit.rank):
            state.saw(hit)

    def restart_timers(self, now: float) -> None:
        """Time in which nothing could be seen counts against no rank."""
        for state in self._states.values():
            state.since = now

    def notices(self, now: float, living: Sequence[int], *, until: float) -> list[RuleNotice]:
        """What is due now. `until`: all lines before that have been looked at."""
        return [
            notice
            for state in self._states.values()
            for notice in (*state.lines_due(now), *state.absences(living, min(until, now)))
        ]

    def last_lines(self) -> list[RuleNotice]:
        """The attempt is over: lines that were not told yet, whenever the rule spoke last."""
        return [n for state in self._states.values() for n in state.lines_due(state.due)]


class _RuleState:
    def __init__(self, rule: OwnRule, since: float = 0.0) -> None:
        self.rule = rule
        self.since = since
        """when the ranks started, or since when lines can be seen"""
        self._last: dict[int, float] = {}
        """rank -> when it wrote the newest one"""
        self._waiting: dict[int, RuleHit] = {}
        """rank -> its first line that was not told yet, with how many there are"""
        self.due = 0.0
        self._again = AGAIN
        self._overdue: dict[int | None, float] = {}
        """rank, or None for any of them -> since when its line is missing, as was told"""

    def saw(self, hit: RuleHit) -> None:
        self._last[hit.rank] = hit.at
        if not self.rule.reports_lines or (self.rule.reads_number and not hit.exceeded):
            return
        if not self._waiting:
            self.due = max(self.due, hit.at + GATHER)
        known = self._waiting.get(hit.rank)
        counted = hit.count + (known.count if known else 0)
        self._waiting[hit.rank] = msgspec.structs.replace(known or hit, count=counted)

    def lines_due(self, now: float) -> Iterator[RuleNotice]:
        if not self._waiting or now < self.due:
            return
        hits, self._waiting = list(self._waiting.values()), {}
        self.due = now + self._again
        self._again = min(2 * self._again, AGAIN_MOST)
        yield lines_notice(self.rule, hits)

    def absences(self, living: Sequence[int], until: float) -> Iterator[RuleNotice]:
        """Asked for ranks that live: one that has ended writes nothing any more."""
        rule = self.rule
        if not (rule.must_appear and living):
            return
        late = dict(self._late(living, until))
        fresh = {key: since for key, since in late.items() if key not in self._overdue}
        back = [key for key in self._overdue if key not in late and self._is_back(key)]
        for key in back:
            yield self._back(key, self._overdue.pop(key))
        self._overdue |= fresh
        for what in ("missing", "stopped"):
            keys = [key for key in fresh if (self._newest(key) is None) == (what == "missing")]
            if keys:
                yield self._absence(what, keys, until)

    def _late(self, living: Sequence[int], until: float) -> Iterator[tuple[int | None, float]]:
        for key in self._asked(living):
            newest = self._newest(key)
            limit = self.rule.within if newest is None else self.rule.every
            since = self.since if newest is None else max(newest, self.since)
            if limit is not None and until - since > limit:
                yield key, since

    def _asked(self, living: Sequence[int]) -> Iterable[int | None]:
        if self.rule.ranks is RanksAsked.ANY:
            return (None,)
        return [rank for rank in living if self.rule.concerns(rank)]

    def _newest(self, key: int | None) -> float | None:
        return self._last.get(key) if key is not None else max(self._last.values(), default=None)

    def _is_back(self, key: int | None) -> bool:
        newest = self._newest(key)
        return newest is not None and newest > self._overdue[key]

    def _absence(self, what: What, keys: Sequence[int | None], until: float) -> RuleNotice:
        who = tuple(key for key in keys if key is not None)
        rule, since = self.rule, self.since
        writer = ranks(who) if who else "no rank"
        verb = "has" if len(who) < 2 else "have"
        if what == "missing":
            negated = f"{verb} not written" if who else "has written"
            told = f"{writer} {negated} its line within {elapsed(until - since)} of the start"
        else:
            newest = max((self._newest(key) or since for key in keys), default=since)
            negated = f"{verb} not written" if who else "has written"
            told = f"{writer} {negated} its line for {elapsed(until - newest)}"
        return _notice(rule, what, who, told)

    def _back(self, key: int | None, since: float) -> RuleNotice:
        newest = self._newest(key) or since
        who = () if key is None else (key,)
        writer = ranks(who) if who else "a rank"
        told = f"{writer} wrote its line again after {elapsed(newest - since)}"
        return _notice(self.rule, "back", who, told)


def lines_notice(rule: OwnRule, hits: Sequence[RuleHit]) -> RuleNotice:
    """Of lines, or the numbers in them; of several the first is quoted."""
    first, count = hits[0], sum(hit.count for hit in hits)
    who = tuple(sorted({hit.rank for hit in hits}))
    lines = f"{count} lines" if count > 1 else "one line"
    if rule.reads_number:
        worst = [hit for hit in hits if hit.value is not None]
        value = first.value if first.value is not None else 0.0
        first = max(worst, key=lambda hit: abs(hit.value or 0.0), default=first)
        value = first.value if first.value is not None else value
        told = f"{value:g} is {first.exceeded} ({lines} of {ranks(who)})"
        return _notice(rule, "number", who, told, quote=first.line, count=count)
    return _notice(rule, "line", who, f"{lines} of {ranks(who)}", quote=first.line, count=count)


def _notice(
    rule: OwnRule, what: What, who: Sequence[int], told: str, *, quote: str = "", count: int = 0
) -> RuleNotice:
    return RuleNotice(
        rule=rule.name,
        severity=rule.severity.value,
        what=what,
        ranks=tuple(who),
        reason=f"{rule.means}: {told}" if what != "back" else told,
        quote=quote,
        count=count,
        fix=rule.fix if what != "back" else "",
    )
