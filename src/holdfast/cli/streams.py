"""stdin, stdout and stderr, whatever they are: closed, full, a broken pipe, or ASCII only."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from typing import TextIO

from holdfast.errors import EnvironmentFailure
from holdfast.text import visible

PLAIN = {"…": "...", "�": "?", "·": "*", "µ": "u"}
"""what our own words look like on a terminal that knows only ASCII"""


def prepare() -> None:
    """Before anything else: so that no later line needs to think of it."""
    # A free number below 3 would go to the first file or socket that we open, and what is
    # written to 'stdout' would end up in it. The kernel gives the lowest free number.
    with contextlib.suppress(OSError):  # a chroot may have no /dev/null
        while (number := os.open(os.devnull, os.O_RDWR)) < 3:
            pass
        os.close(number)
    # Python has None for a stream that was closed when it started.
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    codecs.register_error("holdfast", _spell_out)
    for stream in (sys.stdout, sys.stderr):
        _configure(stream, encoding=None)


def answer(text: str, *, encoding: str | None = None) -> None:
    """What was asked for, on stdout: all of it, or an error."""
    _configure(sys.stdout, encoding=encoding)
    try:
        print(visible(text), flush=True)
    except BrokenPipeError:
        raise
    except OSError as problem:
        silence(sys.stdout)
        raise EnvironmentFailure(
            f"the answer could not be written: {problem.strerror}"
        ) from problem


def width() -> int:
    """How wide prose is on this stdout; 100 columns where it is no terminal."""
    import shutil  # takes ten milliseconds, of which `--help` has a hundred and fifty

    from holdfast.view.text import width_of

    return width_of(shutil.get_terminal_size((101, 40)).columns)


def remark(text: str) -> None:
    """Narration on stderr: when it cannot be written, the work continues."""
    try:
        print(visible(text), file=sys.stderr, flush=True)
    except OSError:
        silence(sys.stderr)


def narrate(line: str) -> None:
    """Progress, in holdfast's own name."""
    remark(f"holdfast> {line}")


def silence(stream: TextIO) -> None:
    """Point the stream elsewhere, else the interpreter's own flush at exit complains again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _configure(stream: TextIO, *, encoding: str | None) -> None:
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding=encoding, errors="holdfast")


def _spell_out(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    lost = problem.object[problem.start : problem.end]
    spelt = (PLAIN.get(c, c.encode("ascii", "backslashreplace").decode()) for c in lost)
    return "".join(spelt), problem.end
