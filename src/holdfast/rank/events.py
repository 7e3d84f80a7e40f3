"""What a rank reports to its launcher: one JSON line an event, in a file.

A file and not a socket: the event of a rank that dies the next moment is still there, and no
process has to listen. Without a launcher of ours there is no file, and nothing is reported.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from holdfast.rank import own_page
from holdfast.rank.delivery import EVENTS

HOPELESS = ".no-save"
"""beside a rank's file: left by the launcher before it ends the ranks after a verdict"""

_file = ""


def adopt(path: str) -> None:
    """From now on this process reports here; what it starts does not: the variable is gone."""
    global _file  # noqa: PLW0603 - one process has one file
    if not _file:
        os.register_at_fork(after_in_child=forget)
    _file = path


def forget() -> None:
    """A forked child must not speak for its rank."""
    global _file  # noqa: PLW0603
    _file = ""


def has_launcher() -> bool:
    """Whether a launcher of ours reads what this process reports."""
    return bool(_file or os.environ.get(EVENTS))


def save_is_hopeless() -> bool:
    """Whether the launcher ends the job after a failure that it has told: no save can be whole."""
    path = _file or os.environ.get(EVENTS, "")
    return bool(path) and os.path.exists(path + HOPELESS)


def tell(kind: str, **fields: Any) -> None:
    """Append one line; what JSON cannot hold becomes text. Never raises into a script."""
    path = _file or os.environ.get(EVENTS, "")
    if not path:
        return
    try:
        event = {**fields, "kind": kind, "t": round(time.time(), 3)}
        line = json.dumps(event, default=str) + "\n"
        number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # One write: the kernel appends it in one piece, also beside other writers.
            os.write(number, line.encode("utf-8", "replace"))
        finally:
            os.close(number)
    except Exception as problem:  # noqa: BLE001
        own_page.complain(problem)
