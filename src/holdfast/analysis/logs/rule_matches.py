"""What logs and journals show of the user's own rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.analysis.rules.rule import OwnRule

if TYPE_CHECKING:
    from holdfast.analysis.job.journal_records import RuleRecord
    from holdfast.analysis.logs.wreckage import LogLine


class RuleMatches(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one writer that a rule matched."""

    rule: str
    lines: tuple[LogLine, ...]
    """the first few; where a number counts only those beyond the limit"""
    count: int
    """of such lines"""
    value: float | None = None
    """the worst number in them"""
    times: tuple[float, ...] = ()
    """of every line that matched, also those with a number that is fine; where lines have times"""
    rank: int | None = None


class RulesSeen(msgspec.Struct, frozen=True, kw_only=True):
    rules: tuple[OwnRule, ...] = ()
    """that logs were searched for"""
    matches: tuple[RuleMatches, ...] = ()
    began: float | None = None
    ended: float | None = None
    """the first and the last time in those logs; None where their lines have none, and where a
    run's journal says what was missing"""
    told: tuple[tuple[RuleRecord, str, int], ...] = ()
    """what a run said of its own rules, with journal and line"""
    ended_well: bool = False
    """that run did: its rules are context"""
    remarks: tuple[str, ...] = ()
    """what could not be searched, and why"""
