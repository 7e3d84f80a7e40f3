"""Slurm's host-list syntax, expanded: `node[001-003,7],gpu-[1-2]-[a,b]`; pure.

`scontrol show hostnames` does the same, but is often missing inside containers.
"""

from __future__ import annotations

import itertools
import re

from holdfast.errors import ConfigError

MOST_NAMES = 65536
"""Slurm's own limit for one range; a list is text from outside and must not fill our memory"""
MOST_CHARACTERS = 1 << 20

_PIECES = re.compile(r"([^\[\]]*)(?:\[([^\[\]]*)\])?")
_RANGE = re.compile(r"(\d{1,18})-(\d{1,18})", re.ASCII)
_TEXT = re.compile(r"[A-Za-z0-9_.-]*", re.ASCII)
_CHOICE = re.compile(r"[A-Za-z0-9_.]+", re.ASCII)


def expand(text: str, *, source: str) -> list[str]:
    """Every name, in order, as often as it is listed. `source` says where the text came from."""
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(f"{source} has {len(text)} characters; the limit is {MOST_CHARACTERS}")
    names: list[str] = []
    for item in split(text, source=source):
        names.extend(_names(item, source, at_most=MOST_NAMES - len(names)))
    return names


def split(text: str, *, source: str) -> list[str]:
    """The items of a list: split at commas and white space outside brackets."""
    items, start, depth = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ConfigError(f"{source}: brackets do not match in {_short(text)}")
        if depth == 0 and (letter == "," or letter.isspace()):
            items.append(text[start:at])
            start = at + 1
    if depth:
        raise ConfigError(f"{source}: a bracket is not closed in {_short(text)}")
    return [item for item in [*items, text[start:]] if item]


def _names(item: str, source: str, *, at_most: int) -> list[str]:
    """`n[1-2]-[a,b]`: the last bracket turns fastest, as in Slurm."""
    parts: list[list[str]] = []
    count = 1
    for plain, bracket in _PIECES.findall(item):
        if not _TEXT.fullmatch(plain):
            raise ConfigError(f"{source}: {_short(item)} is not a host name")
        parts.append([plain])
        if not bracket and f"{plain}[]" in item:
            raise ConfigError(f"{source}: empty brackets in {_short(item)}")
        if bracket:
            parts.append(_choices(bracket, item, source, at_most=at_most // count))
            count *= len(parts[-1])
    if count > at_most:
        raise _too_many(source)
    return ["".join(chosen) for chosen in itertools.product(*parts)]


def _choices(bracket: str, item: str, source: str, *, at_most: int) -> list[str]:
    """`001-003,7`: numbers keep the width that the first of a range is written with."""
    chosen: list[str] = []
    for word in bracket.split(","):
        if found := _RANGE.fullmatch(word):
            first, last = int(found[1]), int(found[2])
            if first > last:
                raise ConfigError(f"{source}: the range {word} in {_short(item)} runs backwards")
            if last - first >= at_most - len(chosen):
                raise _too_many(source)
            chosen += [f"{number:0{len(found[1])}d}" for number in range(first, last + 1)]
        elif _CHOICE.fullmatch(word):
            chosen.append(word)
        else:
            raise ConfigError(f"{source}: {_short(word)} in {_short(item)} is not a range")
    return chosen


def _too_many(source: str) -> ConfigError:
    return ConfigError(f"{source} lists more than {MOST_NAMES} names")


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}…")
