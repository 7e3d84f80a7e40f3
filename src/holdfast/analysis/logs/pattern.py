"""A wording that some program writes into a log, and the part it plays in the story.

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
    """What a wording tells of the one who wrote it."""

    ROOT = "root"
    """it tells of its own trouble: this may be the cause"""
    CASCADE = "cascade"
    """it tells that somebody else failed or is late: never a cause where it is written"""
    CONFIRMATION = "confirmation"
    """seen from outside (kernel, scheduler, another rank): whom it names is the point"""
    TEARDOWN = "teardown"
    """things being put away after a failure"""
    ADVICE = "advice"
    """a guess or a hint by the program; never evidence"""
    CONTEXT = "context"
    """no trouble at all: who is who, what was set, how far things got"""


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
    """the fault it belongs to; '' for wordings that several faults share"""

    @property
    def regex(self) -> re.Pattern[str]:
        return _compiled(self.pattern)


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
