"""Describe one process so that its owner recognises it, without spilling its secrets."""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Sequence

from holdfast.analysis.machine import Process, Unread
from holdfast.system import proc
from holdfast.text import shorten

REDACTED = "<redacted>"
LONGEST_COMMAND = 100
LONGEST_ARGUMENT = 4096
"""a longer one (a whole script after -c) is counted, not searched for secrets"""

# A name is secret when it *ends* in one of these: --hf-token and WANDB_API_KEY are,
# --tokenizer and --max-tokens are not.
_SENSITIVE = (
    r"(?:token|secret|passw(?:or)?d|passphrase|pwd|psk|jwt|credentials?|auth"
    r"|(?:api|access|secret|private|auth|account)[-_]?key)"
)
# Of a variable more names are enough: its value is never needed to explain a run. NCCL_IB_PKEY is
# a number, and not a key of that kind.
_SECRET_NAME = re.compile(
    r"(?:(?<!_p)key|pat|cookie|dsn|salt|signature|secrets|tokens)$", re.IGNORECASE
)
_FOLDERS = frozenset({"PWD", "OLDPWD"})
_SENSITIVE_OPTION = re.compile(rf"-[\w.-]*{_SENSITIVE}", re.IGNORECASE)
_SENSITIVE_ASSIGNMENT = re.compile(rf"([\w.-]*{_SENSITIVE})=.*", re.IGNORECASE | re.DOTALL)

_QUOTED_OR_BARE = r"""(?:"[^"]*"?|'[^']*'?|[^\s"']+)"""
_IN_TEXT = (
    # scheme://user:password@host
    (re.compile(r"(\w://)[^\s/?#]*@"), rf"\1{REDACTED}@"),
    # Authorization: Bearer …
    (re.compile(r"\b(bearer|basic)\s+[^\s\"']+", re.IGNORECASE), rf"\1 {REDACTED}"),
    # NAME=value, name: value, "name": "value"; but `-v $PWD:/work` is a folder
    (
        re.compile(
            rf"""(?!(?<=\$)PWD:)({_SENSITIVE}["']?\s*[=:]\s*){_QUOTED_OR_BARE}""", re.IGNORECASE
        ),
        rf"\1{REDACTED}",
    ),
    # --name value
    (
        re.compile(rf"(?<!\S)(-[\w.-]*{_SENSITIVE}\s+)(?!--){_QUOTED_OR_BARE}", re.IGNORECASE),
        rf"\1{REDACTED}",
    ),
    # Keys that show by their own form, wherever they are: Hugging Face, OpenAI and alike,
    # GitHub, GitLab, Slack, AWS, Google, signed web tokens, Weights & Biases (40 hex digits;
    # that also hides a commit id, which is no loss).
    (
        re.compile(
            r"\b(?:hf_\w{10,}|sk-[\w-]{16,}|gh[a-z]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}"
            r"|xox[a-z]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w.-]+"
            r"|[0-9a-f]{40})(?!\w)"
        ),
        REDACTED,
    ),
)


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


def redact(text: str) -> str:
    """The text without what looks like a password, a token or a key."""
    for pattern, replacement in _IN_TEXT:
        text = pattern.sub(replacement, text)
    return text


def is_secret_name(name: str) -> bool:
    """Whether the value of such a variable must not be shown, whatever it looks like."""
    if name in _FOLDERS:  # 'pwd' is a password's name elsewhere
        return False
    return redact(f"{name}=x") != f"{name}=x" or _SECRET_NAME.search(name) is not None
