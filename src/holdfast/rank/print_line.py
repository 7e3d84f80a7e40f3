"""One line of ours among a script's own output, and it never breaks the script."""

from __future__ import annotations

import contextlib
import os

from holdfast.text import printable


def say(sentence: str) -> None:
    """To stderr, in one piece: the lines of several ranks do not mix."""
    with contextlib.suppress(OSError):
        os.write(2, f"holdfast> {printable(sentence)}\n".encode("utf-8", "replace"))
