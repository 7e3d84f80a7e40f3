"""Commands that end processes: what they aim at."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.source.launch import command_line
from holdfast.analysis.source.source import Command, ShellWord, Source

TAKES_VALUE = frozenset(
    [
        *("-d", "-F", "-g", "-G", "-O", "-P", "-q", "-r", "-s", "-t", "-u", "-U", "-A"),
        *("--delimiter", "--pidfile", "--pgroup", "--group", "--older", "--parent", "--queue"),
        *("--runstates", "--session", "--signal", "--terminal", "--euid", "--uid", "--cgroup"),
        *("--ns", "--nslist", "--env"),
    ]
)
"""options of pkill and pgrep (procps-ng 4.0) that are followed by a value"""
KILLALL_TAKES_VALUE = frozenset(
    ["-s", "-u", "-y", "-o", "-n", "--signal", "--user", "--younger-than", "--older-than", "--ns"]
)
EVERYONES = re.compile(r"\^?(?:\.\*)?(?:python(?:[23](?:\.\d+)?)?|py)(?:\.?\*|\$)?")
"""a pattern that matches whatever Python runs"""


def patterns(command: Command) -> list[ShellWord]:
    """What pkill or pgrep takes as patterns; procps takes one."""
    return command_line.arguments(command.words, TAKES_VALUE)


def targets(command: Command) -> list[ShellWord]:
    """Names of programs that it ends."""
    if command.name == "pkill":
        return patterns(command)
    if command.name == "killall":
        return command_line.arguments(command.words, KILLALL_TAKES_VALUE)
    return []


def narrowed(command: Command) -> bool:
    """It looks at one user's, one session's or one parent's processes only."""
    narrow = ("-u", "-U", "-P", "-g", "-s", "-t", "-F", "--euid", "--uid", "--user", "--parent")
    return any(word.text.split("=")[0] in narrow for word in command.words)


def found_by_python(source: Source, command: Command) -> ShellWord | None:
    """`kill $(pgrep python)`, `ps | grep python | xargs kill`: the word that says python."""
    line = [one for one in source.commands if one.place.line == command.place.line]
    if command.name == "kill":
        looks = any("$(" in word.text or "`" in word.text for word in command.words)
        inside = [one for one in line if one.number > command.number]
        return _python_among(inside) if looks else None
    if command.name == "xargs" and any(word.text == "kill" for word in command.words):
        return _python_among([one for one in line if one.number < command.number])
    return None


def _python_among(commands: list[Command]) -> ShellWord | None:
    for command in commands:
        if command.name in ("pgrep", "grep", "egrep", "pidof"):
            for word in command_line.arguments(command.words, TAKES_VALUE):
                if EVERYONES.fullmatch(word.text.replace("[", "").replace("]", "")):
                    return word
    return None


def kills(source: Source) -> Iterator[Command]:
    for command in source.commands:
        by_xargs = command.name == "xargs" and any(w.text == "kill" for w in command.words)
        if by_xargs or (command.name in command_line.KILLERS and not _only_asks(command)):
            yield command


def _only_asks(command: Command) -> bool:
    """`kill -0 PID` ends nothing, `kill -l` lists; fuser ends only with -k."""
    texts = [word.text for word in command.words[1:]]
    if command.name == "fuser":
        return not any(re.fullmatch(r"-[a-zA-Z]*k[a-zA-Z]*|--kill", text) for text in texts)
    return bool({"-0", "-l", "-L", "-USR1", "-SIGUSR1", "-HUP", "-CONT", "-STOP"} & set(texts))
