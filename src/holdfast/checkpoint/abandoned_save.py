"""A save that is finished without its rank: the next attempt waits for it while it moves on.

The writer of a killed rank 0 holds the folder's lock until its last save is a checkpoint, or given
up (writer.py: within 10 minutes). Only then is it known what there is to resume from.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket

from holdfast.analysis.checkpoints.manifest import step_of_temporary
from holdfast.rank.print_line import say


class AbandonedSave:
    """In this folder, seen by a job that wants its lock."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: dict[str, int] = {}
        self._said = False

    def is_being_finished(self, owner: bytes) -> bool:
        """Whether it has moved since the last look; `owner` is what the lock's owner wrote."""
        if not _is_gone(owner):
            return False
        seen = self._sizes()
        moved = bool(seen) and seen != self._seen
        self._seen = seen
        if moved and not self._said:
            self._said = True
            say(f"waiting for the last save of the attempt before this one in {self._folder}")
        return moved

    def _sizes(self) -> dict[str, int]:
        """Of the files of unfinished saves."""
        found = {}
        with contextlib.suppress(OSError):
            for name in os.listdir(self._folder):
                if step_of_temporary(name) is not None:
                    for entry in os.scandir(os.path.join(self._folder, name)):
                        with contextlib.suppress(OSError):
                            found[entry.path] = entry.stat(follow_symlinks=False).st_size
        return found


def _is_gone(owner: bytes) -> bool:
    """The rank that took the lock: ended on this host, this very process before, or of this run."""
    try:
        known = json.loads(owner)
        pid, host, run = int(known["pid"]), known["host"], known["run"]
    except (ValueError, KeyError, TypeError):
        return False
    if host == socket.gethostname():
        return pid == os.getpid() or not os.path.exists(f"/proc/{pid}")
    return bool(run) and run == os.environ.get("TORCHELASTIC_RUN_ID", "")
