"""Text from outside as part of a command that we advise to paste: one quoted word, or left out.

A path, a host or an interface comes from a log, a file name or another machine, and may have been
written so that a command hidden in it is pasted. Quoting alone is not enough: a word that begins
with a dash is an option, a control character changes what is shown, and a backtick ends the command
in our own sentences.
"""

from __future__ import annotations

import re
import shlex

LONGEST = 400
"""characters; the screen cuts longer lines, and half a quoted word is worse than none"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def fits(value: str) -> bool:
    """Whether it can be pasted as one word, quoted."""
    return (
        0 < len(value) <= LONGEST
        and value.isprintable()  # no control, bidirectional or invisible character
        and "`" not in value
        and not value.startswith("-")
    )


def word(value: str, otherwise: str) -> str:
    """The value, quoted where a shell needs it; else the placeholder: 'HOST', 'FILE'."""
    return shlex.quote(value) if fits(value) else otherwise


def command(form: str, *values: str) -> str:
    """'ls -l {}' with these values as words; '' when one is missing or cannot be one."""
    return form.format(*map(shlex.quote, values)) if all(map(fits, values)) else ""


def variable(name: str) -> str:
    """The name of an environment variable, as `unset` takes it."""
    return name if _NAME.fullmatch(name) else "NAME"


def setting(name: str, value: str) -> str:
    """'NAME=value', as `export` takes it; a value that cannot be shown is left to the reader."""
    told = shlex.quote(value) if fits(f"={value}") else "VALUE"
    return f"{variable(name)}={told if value else ''}"
