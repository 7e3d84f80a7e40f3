"""The file of one process: a line for all that it did, as analysis/drill/records.py reads it."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

BELOW = "HOLDFAST_DRILL_RANK"
"""name of the file of the rank that started this process. It is no rank itself, unless it enters a
group."""
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


class RecordFile:
    """Nothing is written before the process is known to be a rank."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.rank: int | None = None
        self._descriptor = -1

    def begin(self, rank: int, world: int) -> None:
        if self.rank is not None:
            return
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
        began = {"rank": rank, "world": world, "attempt": int(attempt) if attempt.isdigit() else 0}
        name = f"rank-{rank}.attempt-{began['attempt']}.{os.getpid()}.jsonl"
        self._descriptor = os.open(os.path.join(self.folder, name), FLAGS, 0o644)
        self.rank = rank
        os.environ[BELOW] = name
        self.write("began", time.time(), **began, pid=os.getpid(), host=socket.gethostname())

    def begin_as_told(self) -> None:
        """By what the environment says. A process that a rank started is no rank by that alone."""
        if not is_below_a_rank():
            rank, world = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
            self.begin(int(rank), int(world))

    def write(self, kind: str, t: float, **fields: Any) -> None:
        """In one piece, so that a kill tears at most the last line."""
        if self.rank is not None:
            os.write(self._descriptor, _line(kind, t, fields))

    def refused(self, path: str) -> None:
        """Of a rank, or of a process that it started: then it goes into the rank's file."""
        self.begin_as_told()
        if self.rank is not None:
            self.write("refused", time.time(), path=path)
        elif name := os.environ.get(BELOW):
            descriptor = os.open(os.path.join(self.folder, name), FLAGS, 0o644)
            os.write(descriptor, _line("refused", time.time(), {"path": path}))
            os.close(descriptor)

    def forget(self) -> None:
        """In a forked child: its parent's file is not its own. It may still enter a group."""
        if self.rank is not None:
            os.close(self._descriptor)
        self.rank, self._descriptor = None, -1


def is_below_a_rank() -> bool:
    name = os.environ.get(BELOW)
    return bool(name) and not str(name).endswith(f".{os.getpid()}.jsonl")


def _line(kind: str, t: float, fields: dict[str, Any]) -> bytes:
    return f"{json.dumps({'kind': kind, 't': t, **fields}, separators=(',', ':'))}\n".encode()
