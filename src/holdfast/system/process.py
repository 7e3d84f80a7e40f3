"""Describe one process so that its owner recognises it, without spilling its secrets."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Sequence

from holdfast.analysis.machine import Process, Unread
from holdfast.redaction import REDACTED, SENSITIVE, redact
from holdfast.system import proc
from holdfast.text import shorten

LONGEST_COMMAND = 100
LONGEST_ARGUMENT = 4096
"""a longer one (a whole script after -c) is counted, not searched for secrets"""

_SENSITIVE_OPTION = re.compile(rf"-[\w.-]*{SENSITIVE}", re.IGNORECASE)
_SENSITIVE_ASSIGNMENT = re.compile(rf"([\w.-]*{SENSITIVE})=.*", re.IGNORECASE | re.DOTALL)


def describe(pid: int) -> Process | Unread:
    """What /proc tells about a process; `Unread` when it is gone or hidden."""
    try:
        status, arguments = proc.status(pid), proc.arguments(pid)
    except proc.GONE:
        return Unread(why=f"process {pid} is gone, or hidden from this user")
    except PermissionError:
        return Unread(why=f"process {pid} may not be read by this user")
    row = proc.row_of(pid)
    if row is None:
        return Unread(why=f"process {pid} is gone, or hidden from this user")
    # CLOCK_BOOTTIME is the clock of starttime; wall time may have been set since.
    started = row.started / os.sysconf("SC_CLK_TCK")
    return Process(
        pid=pid,
        command=command_line(arguments) or command_line([f"[{status['Name']}]"]),
        user=user_name(int(status["Uid"].split()[0])),
        age=max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started),
        parent=row.parent,
    )


def user_name(uid: int) -> str:
    """The account's name, or the number when this machine does not know it."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def command_line(arguments: Sequence[str]) -> str:
    """Arguments as one short line of printable text, secrets removed before it is cut."""
    shown = []
    previous = ""
    for argument in arguments:
        shown.append(_shown(argument, after=previous))
        previous = argument
    line = " ".join(shown)
    # Another user's command line may hold anything, terminal escape codes too.
    line = " ".join("".join(c if c.isprintable() else " " for c in line).split())
    return shorten(line, LONGEST_COMMAND)


def _shown(argument: str, *, after: str) -> str:
    """Whole arguments are known here, so a password with spaces goes as a whole."""
    if _SENSITIVE_OPTION.fullmatch(after) and not argument.startswith("--"):
        return REDACTED
    if len(argument) > LONGEST_ARGUMENT:
        return f"<{len(argument)} characters>"
    if assignment := _SENSITIVE_ASSIGNMENT.fullmatch(argument):
        return f"{assignment[1]}={REDACTED}"
    return redact(argument)
