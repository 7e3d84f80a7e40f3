"""Whether a text is a command that can be typed as it stands."""

from __future__ import annotations

import ast
import builtins
import re
import shlex
from collections.abc import Iterator

_PLACEHOLDER = re.compile(
    r"ADDRESS|DIR|ENDPOINT|FILE|FOLDER|HOST|HOSTFILE|JOBID|N|NAME|NODE|PATH|PEER|PID|POD|PORT|SCRIPT"
)
_PROGRAM = re.compile(r"[a-z./][\w./-]*|[A-Z_]\w*=\S*")


def problem(command: str) -> str:
    """Why it cannot be typed as it stands; '' when it can."""
    try:
        parts = _simple_commands(command)
    except ValueError as error:
        return f"no shell can read it: {error}"
    return next((why for part in parts for why in _problems(part)), "")


def _simple_commands(line: str) -> list[list[str]]:
    """The commands of a line that `|`, `;` and `&&` connect, each as its words."""
    whole = re.sub(r"\$\(\w+\)", "value", line)
    lexer = shlex.shlex(whole, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split, lexer.commenters = True, ""
    commands: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("|&;"):
            commands.append([])
        else:
            commands[-1].append(word)
    return commands


def _problems(words: list[str]) -> Iterator[str]:
    if not words or not _PROGRAM.fullmatch(words[0]):
        yield f"{' '.join(words)!r} does not begin with a program"
    if any("…" in word for word in words):
        yield "something is left out (…)"
    if left := [word for word in words if _PLACEHOLDER.fullmatch(word)]:
        yield f"placeholders: {', '.join(left)}"
    if any(word == "#" or word.endswith(",") for word in words):
        yield "prose behind a comma or a '#'"
    if "-c" in words and (unknown := _undefined(words[words.index("-c") + 1])):
        yield f"undefined in python -c: {', '.join(sorted(unknown))}"


def _undefined(argument: str) -> set[str]:
    """Names that a line of Python uses without having them; a number after -c is a count."""
    nodes = list(ast.walk(ast.parse(argument)))
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    known = {(a.asname or a.name).partition(".")[0] for node in imports for a in node.names}
    names = [node for node in nodes if isinstance(node, ast.Name)]
    known |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return {name.id for name in names} - known - set(dir(builtins))
