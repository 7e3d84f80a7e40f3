"""The file of one process: a line for all that it did, as analysis/drill/records.py reads it."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

BELOW = "HOLDFAST_DRILL_RANK"
"""pid of the rank that started this process: it is no rank itself, unless it enters a group"""


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
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(os.path.join(self.folder, name), flags, 0o644)
        self.rank = rank
        os.environ[BELOW] = str(os.getpid())
        self.write("began", time.time(), **began, pid=os.getpid(), host=socket.gethostname())

    def write(self, kind: str, t: float, **fields: Any) -> None:
        """In one piece, so that a kill tears at most the last line."""
        if self.rank is not None:
            line = json.dumps({"kind": kind, "t": t, **fields}, separators=(",", ":"))
            os.write(self._descriptor, f"{line}\n".encode())

    def forget(self) -> None:
        """In a forked child: its parent's file is not its own. It may still enter a group."""
        if self.rank is not None:
            os.close(self._descriptor)
        self.rank, self._descriptor = None, -1
