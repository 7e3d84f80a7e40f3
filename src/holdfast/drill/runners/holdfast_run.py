"""`holdfast run`: what it says is in the journals of its runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from holdfast.analysis.drill.outcome import Happened, Spoken
from holdfast.analysis.job.journal_records import (
    ActionRecord,
    JournalRecord,
    NoticeRecord,
    SavedRecord,
    VerdictRecord,
    decode_lines,
)
from holdfast.drill.layout import JobFolder
from holdfast.drill.runners.runner import Heard, ToStart


class HoldfastRun:
    name = "holdfast"

    def command(self, start: ToStart) -> list[str]:
        return [
            sys.executable, "-m", "holdfast", "run", "--no-check", "--no-pty",
            "--runs", str(start.runs), "--patience", f"{start.patience:g}",
            *start.restarts, *start.options, *start.script,
        ]  # fmt: skip

    def heard(self, folder: JobFolder) -> Heard:
        records = list(_records(folder))
        return Heard(
            spoken=tuple(_spoken(one) for one in records
                         if isinstance(one, NoticeRecord | VerdictRecord)),
            happened=tuple(Happened(t=one.t, what=f"{one.action}: {one.reason}", kind="action")
                           for one in records if isinstance(one, ActionRecord)),
            saved=tuple((one.told_at or one.t, one.step, one.path)
                        for one in records if isinstance(one, SavedRecord)),
        )  # fmt: skip


def _records(folder: JobFolder) -> Iterator[JournalRecord]:
    for journal in sorted(folder.runs.glob("**/journal.jsonl")):
        if not journal.parent.is_symlink():  # `latest`
            yield from (record for _, record in decode_lines(journal.read_bytes()))


def _spoken(record: NoticeRecord | VerdictRecord) -> Spoken:
    return Spoken(
        t=record.t,
        kind="notice" if isinstance(record, NoticeRecord) else "verdict",
        slug=record.slug,
        ranks=tuple(record.ranks),
        hosts=tuple(record.hosts),
        reason=record.reason,
    )


RUNNER = HoldfastRun()
