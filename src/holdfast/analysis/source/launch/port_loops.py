"""Loops and one-liners by which a launch script looks for a free port."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.source.source import Command, ShellLoop, ShellWord, Source, SourceSetting

LOOKERS = frozenset({"ss", "netstat", "lsof", "nc", "ncat", "netcat", "fuser"})
_PORT = re.compile(r"(?:^|_)port\d*$", re.IGNORECASE)
_BIND_ZERO = re.compile(r"\.bind\(\s*\(\s*([\"']).*?\1\s*,\s*0\s*\)\s*\)|HTTPServer|get_free_port")

_COUNTED_PORTS = re.compile(r"\bseq\s+\d{4,5}\s+(?:\d+\s+)?\d{4,5}\b|\{\d{4,5}\.\.\d{4,5}\}")
"""`$(seq 29500 29600)`, `{29500..29600}`"""


def is_port(name: str) -> bool:
    return bool(_PORT.search(name))


def searches(source: Source) -> Iterator[tuple[ShellLoop, str]]:
    """Loops that draw a port and test whether it is in use, with the tool that tests."""
    for number, loop in enumerate(source.loops):
        inside = [c for c in source.commands if number in c.loops or _in(c, loop)]
        looker = next((name for c in inside if (name := _looks(c))), "")
        if looker and _chooses(source, loop):
            yield loop, looker


def tries(source: Source) -> Iterator[ShellLoop]:
    """Loops over ports that start the job on each until one start ends well."""
    for number, loop in enumerate(source.loops):
        if not _counts_ports(loop):
            continue
        inside = [command.name for command in source.commands if number in command.loops]
        starts = any(number in one.command.loops for one in source.launches if one.command)
        if starts and "break" in inside:
            yield loop


def _looks(command: Command) -> str:
    """What it asks whether a port is in use; bash itself by `(echo >/dev/tcp/HOST/PORT)`."""
    by_shell = any(word.text.startswith("/dev/tcp/") for word in command.writes_to)
    return command.name if command.name in LOOKERS else "/dev/tcp" if by_shell else ""


def _in(command: Command, loop: ShellLoop) -> bool:
    return loop.place.line <= command.place.line <= loop.last_line


def _chooses(source: Source, loop: ShellLoop) -> bool:
    """A loop that waits for a server asks too, but sets no port."""
    return _counts_ports(loop) or any(_drawn_in(setting, loop) for setting in source.settings)


def _counts_ports(loop: ShellLoop) -> bool:
    counted = re.match(r"\s*(?:for\s+)?(\w+)\s+in\b(.*)", loop.condition, re.DOTALL)
    if loop.kind != "for" or counted is None:
        return False
    return is_port(counted[1]) or _COUNTED_PORTS.search(counted[2]) is not None


def _drawn_in(setting: SourceSetting, loop: ShellLoop) -> bool:
    inside = loop.place.line <= setting.place.line <= loop.last_line
    return inside and is_port(setting.name) and setting.by != "unset"


def bind_to_zero(command: Command) -> ShellWord | None:
    """`python -c "…bind(('', 0))…getsockname()"`: the word with the program."""
    if not re.fullmatch(r"python[\d.]*", command.name):
        return None
    for flag, word in zip(command.words, command.words[1:], strict=False):
        if flag.text == "-c" and _BIND_ZERO.search(word.text) and "print" in word.text:
            return word
    return None
