"""Searches the logs that are read for the user's own rules.

The search is in a process of its own (system/rule_process.py): what a pattern costs is limited
there, and here what all of them cost together.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from holdfast.analysis.logs.rule_matches import RuleMatches, RulesSeen
from holdfast.analysis.logs.wreckage import LogLine
from holdfast.analysis.rules.rule import NO_RULES, OwnRule, RuleSet
from holdfast.explain.read.byte_streams import Reader
from holdfast.system.rule_process import PatternHit, RuleProcess, SearchedPattern

SECONDS = 120.0
"""that `explain` waits for the search in all"""
AHEAD = 4 << 20
"""bytes that wait to be searched while the next ones are read"""
KEPT = 3
"""lines of one writer that are quoted"""
MOST_TIMES = 200_000
"""of lines, for the question whether one is missing"""

Writer = tuple[object, ...]


class RuleReader:
    def __init__(self) -> None:
        self.rules: RuleSet = NO_RULES
        self.asked: dict[str, OwnRule] = {}
        self.matches: dict[Writer, _WriterMatches] = {}
        self.began: float | None = None
        self.ended: float | None = None
        self.remarks: list[str] = []
        self._search: RuleProcess | None = None
        self._stream = 0
        self._left = SECONDS
        self._times = 0
        self._ask_times = True

    def use(self, rules: RuleSet, *, times: bool) -> None:
        """For what is read from now on. `times`: whether a line is missing, is asked of the logs;
        of a run's folder its journal tells."""
        self._ask_times = times
        if rules == self.rules:
            return
        self.close()
        self.rules = rules
        if rules:
            self.asked |= {one.name: one for one in rules.rules}
            self._search = RuleProcess([_searched(one) for one in rules.rules], quoted=4_000)

    def listening(self, reader: Reader) -> Reader:
        """The same text, searched while it is read."""
        self._stream += 1
        return _Heard(reader, self) if self._search is not None else reader

    def hear(self, data: bytes) -> None:
        if self._search is not None:
            self._search.feed(self._stream, data, at=0.0)
            self._wait(below=AHEAD)

    def hits(self) -> list[PatternHit]:
        """Of the log that was read last, once it has been read."""
        if self._search is None:
            return []
        self._search.end(self._stream, at=0.0)
        self._wait(below=0)
        if self._search is None:
            return []
        for failure in self._search.failures():
            name = "" if failure.pattern is None else self.rules.rules[failure.pattern].name
            self.remarks.append(f"rule {name}: {failure.why}" if name else failure.why)
        return self._search.poll()

    def _wait(self, *, below: int) -> None:
        assert self._search is not None
        began = time.monotonic()
        done = self._search.wait(max(self._left, 0.0), below=below)
        self._left -= time.monotonic() - began
        if not done:
            self.remarks.append(f"your rules: only a part was searched in {SECONDS:g} s")
            self.close()

    def saw(self, hit: PatternHit, line: LogLine) -> None:
        """The line as it is read elsewhere: with its writer, its time, without its prefix."""
        rule = self.rules.rules[hit.pattern]
        key = (rule.name, line.source, line.rank, line.local_rank, line.host, line.pid)
        matches = self.matches.setdefault(key, _WriterMatches(rule))
        matches.add(hit, line)
        if rule.must_appear and line.at is not None and self._times < MOST_TIMES:
            self._times += 1
            matches.times.append(line.at)

    def spans(self, times: Sequence[float | None]) -> None:
        """The times of a log's first and last lines."""
        known = [at for at in times if at is not None]
        if known and self._ask_times:
            self.began = min(known) if self.began is None else min(self.began, *known)
            self.ended = max(known) if self.ended is None else max(self.ended, *known)

    def close(self) -> None:
        if self._search is not None:
            self._search.close()
        self._search, self.rules = None, NO_RULES

    def seen(self) -> RulesSeen:
        enough = self._times < MOST_TIMES
        return RulesSeen(
            rules=tuple(self.asked.values()),
            matches=tuple(one.made() for one in self.matches.values()),
            began=self.began if enough else None,
            ended=self.ended if enough else None,
            remarks=tuple(dict.fromkeys(self.remarks)),
        )


class _WriterMatches:
    def __init__(self, rule: OwnRule) -> None:
        self.rule = rule
        self.lines: list[LogLine] = []
        self.count = 0
        self.worst: float | None = None
        self.times: list[float] = []
        self.first: LogLine | None = None

    def add(self, hit: PatternHit, line: LogLine) -> None:
        self.first = self.first or line
        if not self.rule.reports_lines or (self.rule.reads_number and not hit.beyond):
            return
        self.count += 1
        if len(self.lines) < KEPT:
            self.lines.append(line)
        if hit.value is not None and (self.worst is None or abs(hit.value) > abs(self.worst)):
            self.worst = hit.value
            self.lines[-1] = line

    def made(self) -> RuleMatches:
        assert self.first
        return RuleMatches(
            rule=self.rule.name,
            lines=tuple(self.lines) or (self.first,),
            count=self.count,
            value=self.worst,
            times=tuple(self.times),
        )


class _Heard:
    def __init__(self, reader: Reader, rules: RuleReader) -> None:
        self._reader, self._rules = reader, rules

    def read(self, count: int, /) -> bytes:
        data = self._reader.read(count) or b""
        if data:
            self._rules.hear(data)
        return data


def _searched(rule: OwnRule) -> SearchedPattern:
    return SearchedPattern(
        pattern=rule.pattern,
        number=rule.reads_number,
        above=rule.above,
        below=rule.below,
        after_prefix=True,
    )
