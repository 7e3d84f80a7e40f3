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


LONGEST_GAP = 300
"""characters of any kind that a repetition skips within a line, or takes as a path"""
LONGEST_RUN = 100
"""letters, digits or groups that a repetition takes: numbers, names"""
_ANYTHING = (".", r"\S", "[^")
"""how an atom begins that matches nearly everything"""
_TOKEN = re.compile(
    r"""(?P<atom>\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?P<\w+>|\(\?[:=!]|\(\?<[=!]|.)""", re.DOTALL
)
_REPEAT = re.compile(r"[*+]\??")


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(bounded(pattern))


def bounded(pattern: str) -> str:
    """The same with an upper limit on every repetition.

    A search starts again at each character of a line. Without a limit a hostile line makes each of
    them look at all the rest, and a megabyte of such lines takes minutes. `.*` that only takes
    what is left of a line stays as it is: it never fails.
    """
    made, at, before = "", 0, ""
    while at < len(pattern):
        repeat = _REPEAT.match(pattern, at) if before else None
        if repeat is None:
            token = _TOKEN.match(pattern, at)
            before = token["atom"] if token else pattern[at]
            made, at = made + before, at + len(before)
            continue
        at = repeat.end()
        if before == "." and re.match(r"\)*(?:\$\)*)?(?:\||\Z)", pattern[at:]):
            made += repeat[0]
        else:
            longest = LONGEST_GAP if before.startswith(_ANYTHING) else LONGEST_RUN
            made += f"{{{int(repeat[0][0] == '+')},{longest}}}{repeat[0][1:]}"
        before = ""
    return made
