"""A terminal or pipe that may take nothing: written to without ever waiting for long."""

from __future__ import annotations

import os
import select
from typing import TextIO

USUAL = os.terminal_size((80, 24))


def can_rewrite(stream: TextIO) -> bool:
    """Whether lines that were written can be written again in place."""
    return stream.isatty() and os.environ.get("TERM", "") != "dumb"


def size(stream: TextIO) -> os.terminal_size:
    try:
        seen = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return USUAL
    return os.terminal_size((seen.columns or USUAL.columns, seen.lines or USUAL.lines))


def put(stream: TextIO, text: str, *, patience: float) -> bool:
    """Whether it was taken; never raises, and never blocks for longer than `patience` seconds."""
    try:
        number = stream.fileno()
    except (OSError, ValueError):
        number = -1  # closed, or no file at all
    try:
        if number < 0:
            stream.write(text)
        elif not _has_room(number, patience):
            return False
        else:
            # Past the stream's own buffer: what a broken pipe refuses would stay in there,
            # fail again at exit and change our exit code. One write() a line also keeps the
            # lines of other writers whole.
            errors = stream.errors or "replace"
            os.write(number, text.encode(stream.encoding, errors))
    except (OSError, ValueError):  # a closed terminal, a broken pipe
        return False
    return True


def _has_room(number: int, seconds: float) -> bool:
    """A pipe is ready when it has room for PIPE_BUF (4096) bytes: more than one line of ours."""
    ready = select.poll()
    ready.register(number, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in ready.poll(seconds * 1000))
