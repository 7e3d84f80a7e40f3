"""What ssh's last words mean, and the command to type next; pure.

Host keys stay checked as the user's configuration says: no hint turns that off.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import NamedTuple

from holdfast.analysis.nodes import Absence
from holdfast.nodes.reach.hosts import HostSpec
from holdfast.text import shorten

FAILED = 255
"""ssh's own exit status for what went wrong before the command ran"""
LONGEST_QUOTE = 300
INSTALL = "install holdfast there, or name the Python that has it: --remote-python PATH"


class SshEnding(NamedTuple):
    """How an attempt ended that brought no member."""

    status: int | None
    """exit status; None: ended by us at the deadline, or after `problem`"""
    stderr: str
    seconds: float
    problem: str = ""
    """what was wrong with the answer, where there was one"""
    hint: str = ""


class _Meaning(NamedTuple):
    line: re.Pattern[str]
    meaning: str
    hint: Callable[[HostSpec], str]


def _verbose(host: HostSpec) -> str:
    return host.command("-v")


def _rule(pattern: str, meaning: str, hint: Callable[[HostSpec], str] = _verbose) -> _Meaning:
    return _Meaning(re.compile(pattern, re.IGNORECASE), meaning, hint)


_OF_SSH = (
    _rule(
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is not the one that is known here",
        lambda host: shlex.join(["ssh-keygen", "-l", "-F", _known_as(host)]),
    ),
    _rule(
        r"Host key verification failed|host key is known .* strict checking",
        "its host key is not known here; ssh shows it and asks",
        lambda host: host.command(),
    ),
    _rule(r"Permission denied \((?!.*publickey)", "it takes no keys, and wants a password"),
    _rule(r"Permission denied|Too many authentication failures", "it accepts no key of yours"),
    _rule(
        r"Could not resolve hostname",
        "its name does not resolve here",
        lambda host: shlex.join(["getent", "hosts", host.name]),
    ),
    _rule(r"Connection refused|administratively prohibited", "nothing accepts ssh there"),
    _rule(r"timed out", "it does not answer"),
    _rule(r"No route to host|Network is unreachable", "it cannot be reached"),
    _rule(
        r"kex_exchange_identification|Connection (?:closed|reset) by|Connection to .* closed",
        "its sshd, or a jump host on the way, ended the connection",
    ),
    _rule(
        r"Bad owner or permissions|Bad configuration option|terminating, .* bad configuration",
        "ssh refuses its configuration here",
    ),
)
_OF_THE_COMMAND = (
    _rule(r"No module named '?holdfast", "its Python has no holdfast", lambda _: INSTALL),
    _rule(
        r"unrecognized arguments|invalid choice",
        "its holdfast does not know this command: another version?",
        lambda host: host.command(remote="holdfast --version"),
    ),
    _rule(r"not found|No such file", "there is no holdfast on it", lambda _: INSTALL),
    _rule(
        r"not available|not allowed",
        "the account there runs no commands",
    ),
)


def worth_another_try(stderr: str) -> bool:
    """An sshd or a jump host that has too many new connections (MaxStartups) drops some."""
    dropped = re.search(r"kex_exchange_identification: (?:Connection|read)", stderr)
    return bool(dropped) and not re.search("open failed|connect to host|resolve", stderr)


def absence(host: HostSpec, name: str, ending: SshEnding) -> Absence:
    """Why this node is not here, in the words of ssh."""
    if ending.problem and ending.status in (None, 0):
        said = f"; ssh said: {quote}" if (quote := _last(ending.stderr)) else ""
        return Absence(
            name=name, why=f"{ending.problem}{said}", hint=ending.hint or host.command("-v")
        )
    if ending.status is None:
        said = f": {quote}" if (quote := _last(ending.stderr)) else ""
        return Absence(
            name=name,
            why=f"no answer over ssh within {ending.seconds:.0f} s{said}",
            hint=host.command("-v", "-o", "ConnectTimeout=10"),
        )
    for rule in _OF_SSH if ending.status == FAILED else _OF_THE_COMMAND:
        for line in _lines(ending.stderr):
            if rule.line.search(line):
                return Absence(name=name, why=f"{rule.meaning}: {line}", hint=rule.hint(host))
    quote = _last(ending.stderr) or ending.problem
    if ending.status == FAILED:
        # also the status of a command that a signal ended over there
        silent = "ssh exited with 255 and said nothing; the command may have been killed there"
        why = f"ssh failed: {quote}" if quote else silent
        return Absence(name=name, why=why, hint=host.command("-v"))
    quote = quote or "it said nothing"
    if ending.status == 127:
        return Absence(name=name, why=f"there is no holdfast on it: {quote}", hint=INSTALL)
    return Absence(
        name=name,
        why=f"holdfast ended there with exit code {ending.status}: {quote}",
        hint=host.command(remote="holdfast check"),
    )


def _known_as(host: HostSpec) -> str:
    """The name of a host in known_hosts."""
    return host.name if host.port in (None, 22) else f"[{host.name}]:{host.port}"


def _lines(stderr: str) -> list[str]:
    """Frames of @ and banners' rules are no words."""
    lines = (re.sub(r"[^\x20-\x7e]+", " ", line).strip(" @") for line in stderr.splitlines())
    return [shorten(line, LONGEST_QUOTE) for line in lines if re.search(r"[A-Za-z]{3}", line)]


def _last(stderr: str) -> str:
    return next(reversed(_lines(stderr)), "")
