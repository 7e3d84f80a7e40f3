"""What a run came to, or is in, as one sentence for a list of runs. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.analysis.job import failure_chain
from holdfast.analysis.job.failure_chain import FailureChain
from holdfast.analysis.job.journal_records import (
    DiagnosisRecord,
    EndRecord,
    JournalRecord,
    NoticeRecord,
    ProgressRecord,
)
from holdfast.analysis.job.phrases import stop_name
from holdfast.catalogue import traits
from holdfast.run.runs.report import LIKELY


def sentence(records: Sequence[JournalRecord]) -> str:
    """'' for a run in which nothing happened that is worth one."""
    end = next((one for one in reversed(records) if isinstance(one, EndRecord)), None)
    if end and end.reason:
        return end.reason
    failed = failure_chain.find(records)
    if end and end.exit_code == 0:
        return "; ".join(filter(None, (_overcome(failed), _wrong_numbers(records))))
    if failed.stop:
        stall = f" during a stall: {failed.stop.reason}" if failed.stop.ranks else ""
        return f"stopped by {stop_name(failed.stop.stopped_by)}{stall}"
    if end:
        return _cause(failed, records)
    return _stall(records) or _overcome(failed)


def _overcome(failed: FailureChain) -> str:
    failures = (*failed.overcome, *filter(None, (failed.root, *failed.later)))
    slugs = dict.fromkeys(one.slug for one in failures)
    return f"restarted after {', '.join(slugs)}" if slugs else ""


def _wrong_numbers(records: Sequence[JournalRecord]) -> str:
    """A loss that is NaN, replicas that differ: the job ended well, and its model may be lost."""
    told = [r for r in records if isinstance(r, NoticeRecord) and traits(r.slug).is_news]
    return f"{told[-1].slug}: {told[-1].reason}" if told else ""


def _cause(failed: FailureChain, records: Sequence[JournalRecord]) -> str:
    """As the report at the end of the run named it."""
    told = [r for r in records if isinstance(r, DiagnosisRecord) and r.confidence >= LIKELY]
    cause = told[-1] if told else failed.root
    return f"{cause.slug}: {cause.reason}" if cause else ""


def _stall(records: Sequence[JournalRecord]) -> str:
    """Of a run without an end: the last notice, unless steps were taken since."""
    for one in reversed(records):
        if isinstance(one, ProgressRecord):
            return ""
        if isinstance(one, NoticeRecord):
            return one.reason
    return ""
