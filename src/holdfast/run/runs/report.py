"""What a run came to, from its journal's records alone. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast import shell_words, text
from holdfast.analysis.job import failure_chain
from holdfast.analysis.job.failure_chain import FailureChain
from holdfast.analysis.job.journal_records import (
    ActionRecord,
    AttemptRecord,
    EndRecord,
    JournalRecord,
    StepsRecord,
    VerdictRecord,
)
from holdfast.analysis.job.phrases import stop_name
from holdfast.findings import Diagnosis
from holdfast.run.runs import report_numbers, report_pauses, report_saves
from holdfast.text import duration, elapsed, ranks
from holdfast.view.diagnosis import evidence

CAUSES_SHOWN = 3
"""of earlier and of later failures; all are in the journal"""
LIKELY = 0.5
"""of a diagnosis: under this the verdict given while the job ran is the better answer"""
QUOTES = 2


class RunReport(NamedTuple):
    seconds: float
    steps: int
    attempts: int
    restarts: int
    lost: float
    """seconds from the last step before a restart to the first one after it, added up"""
    exit_code: int | None
    """None when the run has no end"""
    failures: FailureChain
    pauses: tuple[str, ...] = ()
    """a sentence about the longest one, where it suggests a limit"""
    checkpoints: tuple[str, ...] = ()
    """sentences about saves, and steps done twice"""
    numbers: tuple[str, ...] = ()
    """sentences about losses that were not finite, and replicas"""


def summarise(records: Sequence[JournalRecord]) -> RunReport:
    end = next((record for record in reversed(records) if isinstance(record, EndRecord)), None)
    return RunReport(
        seconds=max(0.0, records[-1].t - records[0].t) if records else 0.0,
        steps=steps_in(records),
        attempts=len({r.attempt for r in records if isinstance(r, AttemptRecord)}),
        restarts=restarts_in(records),
        lost=lost_in(records),
        exit_code=end.exit_code if end else None,
        failures=failure_chain.find(records),
        pauses=tuple(report_pauses.lines(records)),
        checkpoints=tuple(report_saves.lines(records)),
        numbers=tuple(report_numbers.lines(records)),
    )


def steps_in(records: Iterable[JournalRecord]) -> int:
    """Steps taken, in all attempts together: what a restart repeats counts again."""
    most: dict[int, int] = {}
    for record in records:
        if isinstance(record, StepsRecord):
            most[record.attempt] = max(most.get(record.attempt, 0), record.steps)
    return sum(most.values())


def restarts_in(records: Iterable[JournalRecord]) -> int:
    return sum(_is_restart(record) for record in records)


def lost_in(records: Sequence[JournalRecord]) -> float:
    """Each restart costs from the last step before it to the first step after it."""
    if not steps_in(records):
        return 0.0
    total = 0.0
    counted_until = -math.inf  # two restarts without a step between them are one gap
    for place, record in enumerate(records):
        if not isinstance(record, ActionRecord) or not _is_restart(record):
            continue
        back = next(
            (
                later.t
                for later in records[place + 1 :]
                if isinstance(later, StepsRecord)
                and later.attempt > record.attempt
                and later.steps > 0
            ),
            records[-1].t,
        )
        began = max(record.t - record.idle, counted_until)
        total += max(0.0, back - began)
        counted_until = max(counted_until, back)
    return total


def lines(report: RunReport, *, diagnosis: Diagnosis | None = None, folder: str = "") -> list[str]:
    """The end of a run on screen: figures first, the root cause last, where it stays in sight.

    `diagnosis`: what `explain` says about `folder`, now that all logs are in it.
    """
    told, failed = _figures(report), report.failures
    if report.exit_code in (0, None):
        overcome = (*failed.overcome, *filter(None, (failed.root, *failed.later)))
        return [*told, *_shown([_overcome(report, one) for one in overcome])]
    told += _shown([_overcome(report, one) for one in failed.overcome])
    if failed.stop and failed.stop.ranks:
        told.append(f"stalled when it was stopped: {_verdict(failed.stop)}")
    elif failed.root:
        told += _shown(_afterwards(failed.root, failed.later))
        told += _root_cause(failed.root, diagnosis, folder)
    elif not failed.stop:
        told += _diagnosed(diagnosis, folder)
    return told


def _shown(sentences: Sequence[str]) -> Iterator[str]:
    """The first ones: a job may be restarted for weeks."""
    yield from sentences[:CAUSES_SHOWN]
    if (more := len(sentences) - CAUSES_SHOWN) > 0:
        yield f"{_count(more, 'more failure')}: see the journal"


def _afterwards(root: VerdictRecord, later: Iterable[VerdictRecord]) -> list[str]:
    """What the restarts came to, each sentence once."""
    told: dict[str, list[int]] = {}
    for one in later:
        same = (one.slug, one.ranks) == (root.slug, root.ranks)
        told.setdefault("the same again" if same else _verdict(one), []).append(one.attempt)
    return [
        f"after restart{'s' if len(numbers) > 1 else ''} {text.numbers(numbers)}: {sentence}"
        for sentence, numbers in told.items()
    ]


def _root_cause(cause: VerdictRecord, diagnosis: Diagnosis | None, folder: str) -> Iterator[str]:
    better = _diagnosed(diagnosis, folder)
    if diagnosis and better and not _agree(diagnosis, cause):
        yield f"verdict while it ran: {_verdict(cause)}"
        yield from better
        return
    if cause.fix:
        yield f"help: {cause.fix}"
    if better:
        yield _hint(folder)
    yield f"root cause: {_verdict(cause)}"


def _diagnosed(found: Diagnosis | None, folder: str) -> list[str]:
    """What `explain` says, when it is likely enough."""
    if found is None or found.confidence < LIKELY:
        return []
    return [
        *(f"  --> {evidence(one)}" for one in found.evidence[:QUOTES]),
        *([f"help: {found.fix}"] if found.fix else []),
        _hint(folder),
        f"root cause: {_sentence(found.slug, _culprits(found), found.reason)}",
    ]


def _figures(report: RunReport) -> list[str]:
    unknown = "no step seen" if report.exit_code else "steps unknown (no optimizer call seen)"
    steps = _count(report.steps, "step") if report.steps else unknown
    again = _count(report.restarts, "restart")
    told = [f"{_head(report)}: {steps}, {again}, {duration(report.seconds)}"]
    if report.lost:
        told.append(f"{elapsed(report.lost)} lost between the last step before a restart and "
                    "the first after it")  # fmt: skip
    told += (*report.checkpoints, *report.numbers)
    return [*told, *report.pauses]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _head(report: RunReport) -> str:
    if report.exit_code is None:
        return "no end was written"
    if report.exit_code == 0:
        return "done"
    if report.failures.stop:
        return f"stopped by {stop_name(report.failures.stop.stopped_by)}"
    return f"failed with exit code {report.exit_code}"


def _agree(found: Diagnosis, cause: VerdictRecord) -> bool:
    same_ranks = set(_culprits(found)) <= set(cause.ranks) if _culprits(found) else not cause.ranks
    return found.slug == cause.slug and same_ranks


def _culprits(found: Diagnosis) -> tuple[int, ...]:
    rank = found.culprit.rank if found.culprit else None
    return () if rank is None else (rank,)


def _hint(folder: str) -> str:
    return f"`holdfast explain {shell_words.word(folder, 'RUN')}` shows the evidence"


def _overcome(report: RunReport, cause: VerdictRecord) -> str:
    """Short: its whole sentence was said when it happened, and is in the journal."""
    restart = f" (restart {cause.attempt + 1})" if cause.attempt < report.restarts else ""
    return f"recovered from {cause.slug}{_on(cause.ranks)}{restart}"


def _verdict(cause: VerdictRecord) -> str:
    return _sentence(cause.slug, cause.ranks, cause.reason)


def _sentence(slug: str, culprits: Sequence[int], reason: str) -> str:
    """Names the culprits once: most reasons begin with them."""
    named = culprits and re.match(rf"{re.escape(ranks(culprits))}\b|all \d", reason)
    return f"{slug}{'' if named else _on(culprits)}: {reason}"


def _on(culprits: Sequence[int]) -> str:
    return f" on {ranks(culprits)}" if culprits else ""


def _is_restart(record: JournalRecord) -> bool:
    return isinstance(record, ActionRecord) and record.action == "restart"
