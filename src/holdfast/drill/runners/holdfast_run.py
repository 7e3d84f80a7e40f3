"""`holdfast run`: what it says is in the journals of its runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import msgspec

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
from holdfast.drill.runners import screens
from holdfast.drill.runners.runner import HeardOfRunner, ToStart


class HoldfastRun:
    name = "holdfast"

    def command(self, start: ToStart) -> list[str]:
        unchecked = [] if start.checks_first else ["--no-check"]
        return [
            sys.executable, "-m", "holdfast", "run", *unchecked, "--no-pty",
            "--runs", str(start.runs), "--patience", f"{start.patience:g}",
            *start.restarts, *start.options, *start.script,
        ]  # fmt: skip

    def heard(self, folder: JobFolder) -> HeardOfRunner:
        records = list(_records(folder))
        return HeardOfRunner(
            spoken=_spoken_and_shown(folder, records),
            happened=tuple(Happened(t=one.t, what=f"{one.action}: {one.reason}", kind="action")
                           for one in records if isinstance(one, ActionRecord)),
            saved=tuple((one.told_at or one.t, one.step, one.path)
                        for one in records if isinstance(one, SavedRecord)),
        )  # fmt: skip


def _records(folder: JobFolder) -> Iterator[JournalRecord]:
    for journal in sorted(folder.runs.glob("**/journal.jsonl")):
        if not journal.parent.is_symlink():  # `latest`
            host = journal.relative_to(folder.runs).parts[0]
            ahead = folder.clock_ahead.get(host, 0.0)
            for _, record in decode_lines(journal.read_bytes()):
                yield msgspec.structs.replace(record, t=record.t - ahead) if ahead else record


def _spoken_and_shown(folder: JobFolder, records: Sequence[JournalRecord]) -> tuple[Spoken, ...]:
    """What is said before there is a run, by a launcher that cannot join or will not start, is on
    its screen alone."""
    kept = [one for one in records if isinstance(one, NoticeRecord | VerdictRecord)]
    shown = screens.named(folder, known={one.code for one in kept})
    return tuple(sorted((*map(_spoken, kept), *shown), key=lambda one: one.t))


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
