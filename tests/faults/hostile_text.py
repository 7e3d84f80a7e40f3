"""Hostile text put in the place of every name that a fault's advice repeats.

A case of a fault's own tests is asked once. Every word that is in a command it advises and in
what it was asked about came from outside: it is replaced there by one that breaks out of a
command, and the fault is asked again.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from holdfast import catalogue
from holdfast.analysis.logs.patterns import all_patterns
from holdfast.analysis.logs.wreckage import Sighting
from holdfast.findings import Diagnosis, Finding, Verdict

MARK = "PWNED"
OPTION = "an option of its own making"
ATTACKS: tuple[Callable[[str], str], ...] = (
    lambda word: f"{word};touch${{IFS}}{MARK}$(touch {MARK})",
    lambda word: f"{word}' ;touch {MARK}; '\"",
    lambda word: f"{word}` ; touch {MARK} ; `",
    lambda _: f"-o{MARK}=x",
    lambda word: f"{word}\u202e\ntouch {MARK}",
)
"""each makes a hostile text of an ordinary one"""

_WORD = re.compile(r"[^\s`'\"=,;:()|&<>$]{2,}")
AS_WRITTEN = ("program", "written", "hint", "fix")
"""fields whose text is the user's own source, or a sentence of ours"""
_COMMAND = re.compile(r"`([^`]*)`")


def commands(answer: object) -> list[str]:
    """Every command in an answer: `next`, and what is between backticks in its help."""
    assert isinstance(answer, (Diagnosis, Verdict, Finding)), answer
    helps = [answer.fix]
    if isinstance(answer, Verdict):
        helps.append(answer.fix_after_end or "")
    whole = [answer.next] if isinstance(answer, Diagnosis) and answer.next else []
    return whole + [found for one in helps for found in _COMMAND.findall(one)]


def danger(command: str) -> str:
    """Why it must not be pasted; '' where the hostile text in it is harmless."""
    if MARK not in command:
        return ""
    if not command.isprintable():
        return "a character that changes what is shown"
    outside = _outside_quotes(command)
    run = " ".join(re.findall(rf"\S*{MARK}", outside))
    if re.search(rf"touch\s+{MARK}", outside) or re.search(r"[;$&|<>\\()]", run):
        return "outside of quotes"
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"no shell can read it: {error}"
    if any(word.startswith("-") and MARK in word for word in words):
        return OPTION
    return ""


def _outside_quotes(command: str) -> str:
    """What a shell reads as its own language: `it'"'"'s` is how shlex writes an apostrophe."""
    return re.sub(r"'[^']*'", "", command.replace("'\"'\"'", ""))


def outside_words(asked: Any, answers: Iterable[object]) -> list[str]:
    """The words of the advised commands that are in what was asked about."""
    texts = set(_strings(asked))
    told = {word for one in answers for c in commands(one) for word in _WORD.findall(c)}
    return sorted(
        w for w in told - _ours() if not w.startswith("-") and any(w in one for one in texts)
    )


def hostile_versions(asked: Any, words: Iterable[str]) -> Iterator[Any]:
    """What was asked about, with each of these words replaced in turn by each attack."""
    for word in words:
        for attack in ATTACKS:
            yield _replaced(asked, word, attack(word))


@functools.cache
def _ours() -> frozenset[str]:
    """What holdfast itself wrote into what is asked about."""
    return frozenset({entry.fault.slug for entry in catalogue.entries()})


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(key)
            yield from _strings(item)
    elif isinstance(value, (list, tuple, frozenset, set)):
        for item in value:
            yield from _strings(item)
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _strings(getattr(value, name))


def _replaced(value: Any, old: str, new: str) -> Any:  # noqa: PLR0911 - one kind after another
    if isinstance(value, str):
        return value.replace(old, new)
    if isinstance(value, Sighting):
        return _read_again(value, old, new)
    if isinstance(value, dict):
        return {_replaced(k, old, new): _replaced(v, old, new) for k, v in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replaced(item, old, new) for item in value))
    if isinstance(value, (list, tuple, frozenset, set)):
        return type(value)(_replaced(item, old, new) for item in value)
    if isinstance(value, msgspec.Struct) and getattr(value, "known", True):
        names = [name for name in value.__struct_fields__ if name not in AS_WRITTEN]
        fields = {name: _replaced(getattr(value, name), old, new) for name in names}
        return msgspec.structs.replace(value, **fields)
    return value


def _read_again(seen: Sighting, old: str, new: str) -> Sighting:
    """As the reader would see the hostile line; one that its pattern no longer matches is no
    attack."""
    line = _replaced(seen.line, old, new)
    found = _patterns()[seen.pattern].search(line.text.replace("\n", ""))
    if found is None:
        return seen
    fields = {name: text for name, text in found.groupdict().items() if text is not None}
    return msgspec.structs.replace(seen, line=line, fields=fields)


@functools.cache
def _patterns() -> dict[str, re.Pattern[str]]:
    shared = {one.name: one.regex for one in all_patterns.ALL}
    own = {p.name: p.regex for entry in catalogue.entries() for p in entry.fault.log_patterns}
    return {**shared, **own}
