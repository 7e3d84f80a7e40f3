"""Texts that make a slow regular expression show itself.

For every repetition in a pattern: a text that leads to it, the repeated part very often, and an
end that does not match. A matcher that tries again from each place, or each length, then takes
longer with the square of the length, and shows at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

try:
    from re import _constants as sre  # type: ignore[attr-defined]
    from re import _parser as sre_parse  # type: ignore[attr-defined]
except ImportError:  # Python 3.10
    import sre_constants as sre
    import sre_parse

MANY = 16
"""a repetition that can be longer than this is pumped"""
_ANY = " a1.:-/,'\"_A=@%([{<eE;x0\t&?#+~"
"""what a class is asked about, in this order"""


Attack = tuple[str, str, str]
"""(lead, pump, end): the text is lead + pump × n + end"""


def attacks(pattern: str, flags: int = 0, forms: int | None = None) -> Iterator[Attack]:
    """Texts that reach each repetition; `forms`: so many letters of a class only."""
    seen = set()
    for lead, pumps in _repetitions(sre_parse.parse(pattern, flags), ""):
        for pump in pumps[:forms]:
            for made in ((lead, pump, "\x00"), ("", lead + pump, "\x00"), (lead, pump + lead, "")):
                if made[1] and made not in seen:
                    seen.add(made)
                    yield made


def seconds(regex: re.Pattern[Any], attack: Attack, length: int) -> float:
    """How long all searches of a text of this length take."""
    lead, pump, end = attack
    text: Any = lead + pump * (max(length - len(lead), 0) // len(pump) + 1) + end
    if isinstance(regex.pattern, bytes):
        text = text.encode()
    began = time.thread_time()
    for _ in regex.finditer(text):
        pass
    return time.thread_time() - began


def _repetitions(tree: Any, lead: str) -> Iterator[tuple[str, list[str]]]:
    """Every long repetition, with a text that leads to it and texts that it repeats."""
    for op, value in tree:
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, getattr(sre, "POSSESSIVE_REPEAT", None)):
            low, high, inner = value
            if high > MANY:
                yield lead, _pumps(inner)
            yield from _repetitions(inner, lead)
            lead += _sample(inner) * low
        elif op is sre.SUBPATTERN:
            yield from _repetitions(value[3], lead)
            lead += _sample(value[3])
        elif op is sre.BRANCH:
            for branch in value[1]:
                yield from _repetitions(branch, lead)
            lead += _sample(value[1][0])
        elif op in (sre.ASSERT, sre.ASSERT_NOT):
            yield from _repetitions(value[1], lead)
        elif op is getattr(sre, "ATOMIC_GROUP", None):
            yield from _repetitions(value, lead)
            lead += _sample(value)
        else:
            lead += _sample([(op, value)])


def _pumps(inner: Any) -> list[str]:
    """A shortest text that the repeated part matches; of a class several letters."""
    if len(inner) == 1 and inner[0][0] in (sre.IN, sre.ANY, sre.NOT_LITERAL):
        return [sign for sign in " a1.:-/,'\"" if _matches(inner[0], sign)] or [_sample(inner)]
    if len(inner) == 1 and inner[0][0] is sre.BRANCH:
        return [text for branch in inner[0][1][1] if (text := _sample(branch))]
    return [_sample(inner)]


def _sample(tree: Any) -> str:
    made = ""
    for op, value in tree:
        if op is sre.LITERAL:
            made += chr(value)
        elif op in (sre.IN, sre.NOT_LITERAL, sre.ANY):
            made += next((sign for sign in _ANY if _matches((op, value), sign)), "é")
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, getattr(sre, "POSSESSIVE_REPEAT", None)):
            made += _sample(value[2]) * max(value[0], 0)
        elif op is sre.SUBPATTERN:
            made += _sample(value[3])
        elif op is sre.BRANCH:
            made += _sample(value[1][0])
        elif op is getattr(sre, "ATOMIC_GROUP", None):
            made += _sample(value)
    return made


def _matches(node: Any, sign: str) -> bool:
    op, value = node
    if op is sre.ANY:
        return True
    if op is sre.NOT_LITERAL:
        return bool(ord(sign) != value)
    negated = value[0][0] is sre.NEGATE
    return bool(negated) != any(_holds(one, ord(sign)) for one in value[negated:])


def _holds(one: Any, code: int) -> bool:
    op, value = one
    if op is sre.LITERAL:
        return bool(code == value)
    if op is sre.RANGE:
        return bool(value[0] <= code <= value[1])
    sign = chr(code)
    kinds = {
        sre.CATEGORY_DIGIT: sign.isdigit(),
        sre.CATEGORY_SPACE: sign.isspace(),
        sre.CATEGORY_WORD: sign.isalnum() or sign == "_",
    }
    opposite = {
        sre.CATEGORY_NOT_DIGIT: sre.CATEGORY_DIGIT,
        sre.CATEGORY_NOT_SPACE: sre.CATEGORY_SPACE,
        sre.CATEGORY_NOT_WORD: sre.CATEGORY_WORD,
    }
    return kinds[value] if value in kinds else not kinds[opposite[value]]
