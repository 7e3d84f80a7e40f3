"""A line that some program writes into a log, and its role in a failure.

Logs are searched for the anchors, all of them at once and at the speed of the disk; only a line
that holds one is looked at by the pattern. So an anchor must be a fixed text, rare in a healthy
log, that every line meant by the pattern contains.
"""

from __future__ import annotations

import enum
import functools
import re

import msgspec


class Role(enum.Enum):
    """What a line says about the process that wrote it."""

    ROOT = "root"
    """it reports its own trouble: this may be the cause"""
    CASCADE = "cascade"
    """it reports that another process failed or is late: its writer is never the cause"""
    CONFIRMATION = "confirmation"
    """seen from outside (kernel, scheduler, another rank): the process it names matters"""
    TEARDOWN = "teardown"
    """things being put away after a failure"""
    ADVICE = "advice"
    """a guess or a hint by the program; never evidence"""
    CONTEXT = "context"
    """no trouble: which process is which rank, what was set, how far it came"""


class LogPattern(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """'port-in-use: listen'; unique"""
    pattern: str
    """searched in the line after its head (rank, time and host prefixes) is taken off"""
    anchors: tuple[str, ...]
    """each line that the pattern means contains one of these, letter by letter"""
    example: str
    """a whole line as the program writes it, head included where it has one"""
    role: Role = Role.ROOT
    slug: str = ""
    """the fault it belongs to; '' for patterns that several faults share"""

    @property
    def regex(self) -> re.Pattern[str]:
        return _compiled(self.pattern)


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
