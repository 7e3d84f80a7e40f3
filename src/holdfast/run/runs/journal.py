"""The journal of a run: append-only, one JSON object a line; every view of a run reads it.

What the lines say: analysis/job/journal_records.py, and docs/journal.md.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import deque

import msgspec

from holdfast.analysis.job.journal_records import (
    EventRecord,
    EvidenceRecord,
    FolderRecord,
    JournalRecord,
    NoticeRecord,
    ProgressRecord,
    ThinnedRecord,
    decode_lines,
    kind_of,
)
from holdfast.run.runs import redact
from holdfast.run.runs.folder_writer import FolderWriter
from holdfast.run.runs.writer_process import KEPT, LineFile
from holdfast.text import printable

WAIT = 0.5
"""seconds to wait for a line to be on the disk: what is done next is to be found there first"""
LARGEST = 64 << 20
"""bytes: past this only what a run's report needs is written, for a run of months"""
MINOR = (ProgressRecord, EvidenceRecord, NoticeRecord, EventRecord, FolderRecord)
LAST_WAIT = 5.0
"""seconds for all of them, when the run is over"""


class Journal:
    """Writes lines; when the disk takes none it says so once and keeps the last ones here."""

    def __init__(self, path: str | None, *, writer: FolderWriter | None = None) -> None:
        """`None` when there is no run folder at all. With a `writer` no disk is touched here."""
        self.path = path
        self._writer = writer
        self._file = LineFile(path) if path and not writer else None
        self._recent: deque[bytes] = deque(maxlen=KEPT)
        self._complained = False
        self._bytes = 0
        self._lock = threading.Lock()
        if path and writer:
            writer.when_refused(path, lambda refusal: self._complain(refusal.why))

    def write(self, record: JournalRecord) -> None:
        """Never raises: a job must not die because its journal cannot be written."""
        if isinstance(record, MINOR) and self._bytes >= LARGEST:
            return
        line = _encode(msgspec.structs.replace(record, t=round(time.time(), 3)))
        before = self._bytes
        self._bytes += len(line)
        self._write(line)
        if before < LARGEST <= self._bytes:
            self.write(ThinnedRecord(bytes=self._bytes))

    def _write(self, line: bytes) -> None:
        with self._lock:
            self._recent.append(line)
            if self._file is not None:
                try:
                    self._file.write(line)
                except (OSError, ValueError) as problem:
                    self._complain(getattr(problem, "strerror", None) or str(problem))
        if self._writer is not None and self.path:
            self._writer.wait(self._writer.line(self.path, line), WAIT)

    def records(self) -> list[JournalRecord]:
        """Everything that was written, and what still waits for the disk."""
        with self._lock:
            recent = list(self._recent)
        if self.path is None or (self._writer and not self._writer.flush(LAST_WAIT)):
            return _parse(b"".join(recent))
        try:
            content = _content(self.path)
        except (OSError, ValueError):
            return _parse(b"".join(recent))
        known = set(content.splitlines(keepends=True))
        return _parse(b"".join([content, b"\n", *(line for line in recent if line not in known)]))

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()

    def _complain(self, why: str) -> None:
        if self._complained:
            return
        self._complained = True
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
        return _parse(_content(path))
    except (OSError, ValueError):
        return []


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


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
