"""Durations, sizes and lists of ranks in words, the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any


def duration(seconds: float) -> str:
    """A duration as people say it: '3 days', '12 minutes', '41 s'."""
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            count = int(seconds // length)
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{int(seconds)} s"


def exact_duration(seconds: float | None) -> str:
    """A setting's duration without loss: '8 min' for 480, '90 s', '0.1 s'; 'never' for None."""
    if seconds is None:
        return "never"
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length and seconds % length == 0:
            return f"{seconds / length:.0f} {unit}"
    if seconds >= 2 * 86400:
        return f"{seconds / 86400:.1f} days"
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def elapsed(seconds: float) -> str:
    """'4.1 s' below a minute, then as people say it."""
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def size(count: float) -> str:
    """Bytes in binary units: '64 MiB', '1.5 GiB'."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{_short(count)} {unit}"
        count /= 1024
    return f"{_short(count)} TiB"


def bandwidth(speed: float) -> str:
    """Bytes a second in the decimal units of networks: '6.1 MB/s', '48 GB/s'."""
    for unit in ("bytes/s", "kB/s", "MB/s"):
        if speed < 1000:
            return f"{_short(speed)} {unit}"
        speed /= 1000
    return f"{_short(speed)} GB/s"


def _short(count: float) -> str:
    """Three digits are enough: '1.5', '64', '1023'."""
    return f"{count:.0f}" if abs(count) >= 100 else f"{count:.3g}"


def numbers(values: Iterable[int]) -> str:
    """Ranks or pids, compressed: '0-4,6-7'."""
    runs: list[list[int]] = []
    for value in sorted(set(values)):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


MANY_RUNS = 16
"""of numbers that a sentence holds: every other one of 1,024 ranks is no longer read"""


def some_numbers(values: Iterable[int]) -> str:
    """The same in a sentence; of very many the first: '0,2,4,6,8,10,12,14 and 504 more'."""
    listed = sorted(set(values))
    runs = numbers(listed).split(",")
    if len(runs) <= MANY_RUNS:
        return ",".join(runs)
    shown = runs[: MANY_RUNS // 2]
    last = int(shown[-1].rpartition("-")[2])
    more = sum(value > last for value in listed)
    return f"{','.join(shown)} and {more} more"


def ranks(values: Iterable[int]) -> str:
    """'rank 2', 'ranks 0-1,3'."""
    listed = set(values)
    return f"rank{'' if len(listed) == 1 else 's'} {some_numbers(listed)}"


def name(value: str) -> str:
    """A node, an interface or a path in a sentence: a backtick marks our own commands there."""
    return value.replace("`", "'")


def names(values: Iterable[str], shown: int = 5) -> str:
    """Names in the order people count them, the rest counted: 'node-2, node-10 and 3 more'."""
    listed = sorted(set(map(name, values)), key=natural_order)
    if len(listed) <= shown + 1:
        return " and ".join([", ".join(listed[:-1]), listed[-1]] if listed[1:] else listed)
    return f"{', '.join(listed[:shown])} and {len(listed) - shown} more"


NaturalOrder = tuple[list[tuple[int, str]], str]


def natural_order(name: str) -> NaturalOrder:
    """A key to sort by: 'node-2' comes before 'node-10'."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    # Numbers by their size: longer ones are larger once leading zeros are gone.
    keys = [(len(p.lstrip("0")), p.lstrip("0")) if p[0] in "0123456789" else (0, p) for p in parts]
    return keys, name


def plural(values: Iterable[object], one: str, many: str) -> str:
    """`one` for a single value, else `many`: 'waits' and 'wait', 'has' and 'have'."""
    return one if len(set(values)) == 1 else many


def counted(count: int, noun: str) -> str:
    """'1 rank', '4 nodes'."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def shorten(text: str, longest: int) -> str:
    """At most `longest` characters; what was cut is shown by '…'."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


UNSEEN = (
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f"
)
"""characters, for a class: invisible ones, and those that turn the order of the others round"""
_UNSEEN = re.compile(f"[{UNSEEN}]")


def visible(value: str) -> str:
    """The same with such characters written out, '\\u202e', as JSON escapes them too: what is
    shown must be what is there. Between letters that need it a joiner stays."""
    if value.isascii():
        return value
    return _UNSEEN.sub(_written_out, value)


def _written_out(found: re.Match[str]) -> str:
    sign = found[0]
    before = found.string[max(found.start() - 1, 0) : found.start()]
    if sign in "\u200c\u200d" and not before.isascii():
        return sign  # within words of Persian or Hindi, and in emoji
    units = sign.encode("utf-16-be")
    return "".join(f"\\u{units[n]:02x}{units[n + 1]:02x}" for n in range(0, len(units), 2))


def printable(value: Any) -> Any:
    """The same text, or plain data with texts in it, as any encoder takes it.

    Names of files, variables and processes are bytes to the kernel. Python carries those that
    are no UTF-8 as lone surrogates, which cannot be printed nor sent.
    """
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "�", value)
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [printable(item) for item in value]
    return value
