"""The journal of a run: append-only, one JSON object a line; every view of a run reads it.

Each line has `t` (wall seconds) and `kind`; all but `launch` should have `attempt` and `steps`
(taken in that attempt), from which steps, restarts and time lost are counted:

launch    run, command, world, host, max_restarts
rank      rank, pid, host, what ('started', 'ready', 'raised', 'exited'), code
progress  longest_pause, usual_step; written now and then, so that `holdfast runs` knows the step
notice    judgement(verdict, hosts), idle (seconds since the last step): named, not acted on
evidence  folder, ranks, missing
verdict   as a notice, but an action follows
action    action ('restart', 'stop'), idle, reason
resume    rank, step, path, world_size, saved_world, accepted; after a restart reached, repeated
saved, save-failed, set-aside, first-step, cadence   as a rank told them (rank/events.py)
own-fault slug, face, exception: a face of ours raised, and was passed over
left      pids, reason: what ranks that ended well left running
leftovers runs, pids, stuck, reason: of earlier runs without a launcher, ended before the start
end       exit_code, reason, longest_pause, group_timeout
diagnosis code, slug, confidence, ranks, victims, reason, fix: the folder of a failed run, explained
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.findings import Verdict
from holdfast.run.runs import redact
from holdfast.text import printable

Record = dict[str, Any]
KEPT = 1000
"""lines kept in memory while the disk takes none"""


def judgement(verdict: Verdict, *, hosts: Iterable[str]) -> Record:
    """The fields of a notice or a verdict; `hosts` are the culprits' machines."""
    return {
        "code": verdict.code,
        "slug": verdict.slug,
        "ranks": list(verdict.ranks),
        "victims": list(verdict.victims),
        "hosts": sorted(set(hosts)),
        "reason": verdict.reason,
        "certain": verdict.certain,
        "fix": verdict.fix,
        "evidence": msgspec.to_builtins(verdict.evidence),
    }


class Journal:
    """Writes lines; when the disk takes none it says so once and keeps the last ones here."""

    def __init__(self, path: str | None) -> None:
        """`None` when there is no run folder at all."""
        self.path = path
        self._waiting: deque[bytes] = deque(maxlen=KEPT)
        self._file = -1
        self._torn = False
        self._complained = False
        self._lock = threading.Lock()

    def write(self, kind: str, **fields: Any) -> None:
        """Never raises: a job must not die because its diary cannot be kept."""
        line = _encode({"t": round(time.time(), 3), "kind": kind, **fields})
        with self._lock:
            self._waiting.append(line)
            if self.path is not None:
                self._drain(self.path)

    def records(self) -> list[Record]:
        """Everything that was written, and what still waits for the disk."""
        with self._lock:
            return (read(self.path) if self.path else []) + _parse(b"".join(self._waiting))

    def close(self) -> None:
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _drain(self, path: str) -> None:
        try:
            if self._file < 0:
                self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
                self._torn = _ends_torn(path)
            while self._waiting:
                self._append(self._waiting[0])
                self._waiting.popleft()
        except (OSError, ValueError) as problem:
            self._complain(problem)

    def _append(self, line: bytes) -> None:
        """One write() a line: the kernel appends it in one piece, beside any other writer."""
        # A disk that fills up takes the first half of a line: the next one starts afresh.
        whole = b"\n" + line if self._torn else line
        written = os.write(self._file, whole)
        self._torn = self._torn if written == 0 else written < len(whole)
        if written < len(whole):
            raise OSError("only a part of the line was taken, as by a full disk")

    def _complain(self, problem: OSError | ValueError) -> None:
        if self._complained:
            return
        self._complained = True
        why = getattr(problem, "strerror", None) or problem
        with contextlib.suppress(OSError, ValueError):
            print(
                f"holdfast> the journal {self.path} cannot be written ({why}); the job goes on, "
                f"the last {KEPT} lines are kept in memory until it can",
                file=sys.stderr,
                flush=True,
            )


def read(path: str) -> list[Record]:
    """Every whole line; a torn one (a crash, a full disk) is passed over. Never raises."""
    try:
        with open(path, "rb") as file:
            return _parse(file.read())
    except (OSError, ValueError):
        return []


def _parse(content: bytes) -> list[Record]:
    records = []
    for line in content.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):  # msgspec's errors are ValueErrors
            record = msgspec.json.decode(line)
            if isinstance(record, dict) and _is_time(record.get("t")) and _is_text(record):
                records.append(record)
    return records


def _is_time(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_text(record: Record) -> bool:
    return isinstance(record.get("kind"), str)


def _encode(record: Record) -> bytes:
    try:
        # An exception's text may quote a password; a journal is made to be shown to others.
        return msgspec.json.encode(redact.from_data(printable(record)), enc_hook=str) + b"\n"
    except Exception as bug:  # noqa: BLE001 - one odd field must cost neither the line nor the job
        bare = {"t": record["t"], "kind": printable(str(record["kind"])), "unwritten": repr(bug)}
        return msgspec.json.encode(printable(bare)) + b"\n"


def _ends_torn(path: str) -> bool:
    """Whether somebody's last line has no end yet; a fresh file has no such line."""
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
