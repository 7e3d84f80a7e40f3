"""What the ranks of this node print, searched for the lines that the user's own rules are about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from holdfast import text
from holdfast.analysis.rules.rule import RuleSet
from holdfast.redaction import redact
from holdfast.system.rule_process import PatternHit, RuleProcess, SearchedPattern

EVENT = "own-rule"
"""the kind of an event that says which line of a rank a rule matched"""
APART = 1.0
"""seconds between two reports of one rule on one stream of one rank"""
QUOTED = 200
LAST_LINES = 1.5
"""seconds for the last lines of a job that has ended: a pattern may take one of them"""


class OutputRules:
    """Fed by the thread that carries the output, asked by the one that watches. Neither waits."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self._search: RuleProcess | None = None
        if rules:
            patterns = [
                SearchedPattern(
                    pattern=one.pattern, number=one.reads_number, above=one.above, below=one.below
                )
                for one in rules.rules
            ]
            self._search = RuleProcess(patterns, apart=APART)
        self._odd: set[int] = set()
        self._left_out = 0

    def add(self, rank: int, kind: int, printed: bytes, at: float) -> None:
        """`kind`: 0 for stdout, 1 for stderr: their lines may mix."""
        if self._search is not None:
            self._search.feed(2 * rank + kind, printed, at=at)

    def look(self) -> RuleNews:
        """What has been found since this was last asked."""
        if self._search is None:
            return RuleNews()
        hits = self._search.poll()
        remarks = [self._odd_number(hit) for hit in hits if hit.not_a_number]
        for failure in self._search.failures():
            if failure.pattern is None:
                remarks.append(f"your rules are not looked at any more: {failure.why}")
            else:
                name = self.rules.rules[failure.pattern].name
                remarks.append(
                    f"your rule {name} is disabled: {failure.why}; training and all other rules "
                    "continue"
                )
        lost = self._search.left_out()
        if lost and not self._left_out:
            remarks.append(
                f"your rules cannot keep up: {text.size(lost)} of output were not searched"
            )
        self._left_out += lost
        events = [(hit.stream // 2, self._event(hit)) for hit in hits]
        return RuleNews(events, [one for one in remarks if one], gap=bool(lost))

    def finish(self, now: float) -> None:
        """The ranks have ended: their last lines are searched, as far as that takes no time."""
        if self._search is not None:
            self._search.end_all(at=now)
            self._search.wait(LAST_LINES)

    def searched_until(self, now: float) -> float:
        return self._search.searched_until(now) if self._search is not None else now

    def close(self) -> None:
        if self._search is not None:
            self._search.close()
            self._search = None

    def _event(self, hit: PatternHit) -> dict[str, Any]:
        rule = self.rules.rules[hit.pattern]
        exceeded = rule.exceeded(hit.value) if hit.value is not None else ""
        return {
            "kind": EVENT,
            "rule": rule.name,
            "line": text.shorten(redact(hit.line), QUOTED),
            "value": hit.value,
            "exceeded": exceeded,
            "count": hit.lines,
        }

    def _odd_number(self, hit: PatternHit) -> str:
        """Once a rule."""
        if hit.pattern in self._odd:
            return ""
        self._odd.add(hit.pattern)
        rule = self.rules.rules[hit.pattern]
        return f"your rule {rule.name} matched {hit.not_a_number!r}, in which it found no number"


class RuleNews(NamedTuple):
    events: Sequence[tuple[int, dict[str, Any]]] = ()
    """rank and event"""
    remarks: Sequence[str] = ()
    gap: bool = False
    """some output was not searched"""
