"""Exceptions by which Python refuses a whole file, told apart from those that a rank's code raised.
Pure."""

from __future__ import annotations

import re

from holdfast.analysis.logs import own_errors
from holdfast.analysis.logs.wreckage import LoggedException, Wreckage

KINDS = ("SyntaxError", "IndentationError", "TabError")
ERROR = re.compile(rf"\b(?:{'|'.join(KINDS)}): ")
_PYTHONS_WORDS = re.compile(r"(?!missing )[a-z'\"(]|Missing paren|Non-UTF-8|Non-ASCII|Generator ")
"""how its messages begin; those of JavaScript have other words or a capital"""


def refused(wreckage: Wreckage) -> tuple[LoggedException, ...]:
    return tuple(one for one in wreckage.raised if _is_of_a_file(one))


def _is_of_a_file(raised: LoggedException) -> bool:
    if raised.kind not in KINDS or not own_errors.tells_a_cause(raised):
        return False
    if not raised.frames:
        return _PYTHONS_WORDS.match(raised.text) is not None
    # The compiler's frame has no function; what a program gives to eval() has no file.
    place = raised.frames[0]
    return not place.function and not place.file.startswith("<")
