"""The journal of a run: append-only, one JSON object a line; every view of a run reads it.

What the lines say: analysis/job/journal_records.py, and docs/journal.md.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import deque

import msgspec

from holdfast.analysis.job.journal_records import JournalRecord, decode_lines, kind_of
from holdfast.run.runs import redact
from holdfast.text import printable

KEPT = 1000
"""lines kept in memory while the disk takes none"""


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

    def write(self, record: JournalRecord) -> None:
        """Never raises: a job must not die because its journal cannot be written."""
        line = _encode(msgspec.structs.replace(record, t=round(time.time(), 3)))
        with self._lock:
            self._waiting.append(line)
            if self.path is not None:
                self._drain(self.path)

    def records(self) -> list[JournalRecord]:
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
                f"holdfast> cannot write the journal {self.path} ({why}): training continues, the "
                f"last {KEPT} lines are kept in memory",
                file=sys.stderr,
                flush=True,
            )


def read(path: str) -> list[JournalRecord]:
    """Every whole line; a torn one (a crash, a full disk) is skipped. Never raises."""
    try:
        with open(path, "rb") as file:
            return _parse(file.read())
    except (OSError, ValueError):
        return []


def _parse(content: bytes) -> list[JournalRecord]:
    # Every writer puts the time on its lines: one without it is not a journal's.
    return [record for _, record in decode_lines(content) if record.t]


def _encode(record: JournalRecord) -> bytes:
    try:
        data = printable(msgspec.to_builtins(record, enc_hook=str))
        # An exception's text may quote a password; a journal is made to be shown to others.
        return msgspec.json.encode(redact.from_data(data)) + b"\n"
    except Exception as bug:  # noqa: BLE001 - one odd field must cost neither the line nor the job
        bare = {"kind": kind_of(record), "t": record.t, "unwritten": repr(bug)}
        return msgspec.json.encode(printable(bare)) + b"\n"


def _ends_torn(path: str) -> bool:
    """Whether the last line has no end yet; a new file has no such line."""
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
