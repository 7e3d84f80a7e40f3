"""What the ranks report of their numbers in one attempt: losses, digests of replicas. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.analysis.job import journal_records
from holdfast.analysis.job.journal_records import EventRecord, NotFiniteRecord
from holdfast.analysis.scene.numbers import NotFinite, RankNumbers
from holdfast.run.watch.replica_tracker import ReplicaTracker

KINDS = ("not-finite", "replica-digest", "replicas-not-comparable")
FRESH = 10.0
"""seconds after a report in which those of other ranks may come: what they mean is asked again"""
MOST = 4096
"""reports of losses that are kept: three of each of a thousand ranks, and some"""


class NumbersTracker:
    def __init__(self, attempt: int = 0) -> None:
        self.attempt = attempt
        self.replicas = ReplicaTracker(attempt)
        self._not_finite: list[NotFinite] = []

    def concerns(self, event: Mapping[str, Any]) -> bool:
        return event["kind"] in KINDS

    def add(
        self, rank: int, event: Mapping[str, Any], now: float
    ) -> tuple[EventRecord | None, str]:
        """The line for the journal and the sentence for the screen, if any. What a rank may have
        written instead raises, and is journalled as it is."""
        fields = {name: value for name, value in event.items() if name not in ("kind", "t")}
        if event["kind"] == "replica-digest":
            return None, self.replicas.add(rank, fields)
        if event["kind"] == "replicas-not-comparable":
            return None, self.replicas.refused(rank, str(fields["why"])[:300])
        told = {name: value for name, value in event.items() if name != "kind"}
        record = journal_records.event("not-finite", told, rank=rank, attempt=self.attempt)
        if isinstance(record, NotFiniteRecord) and len(self._not_finite) < MOST:
            self._not_finite.append(
                NotFinite(
                    attempt=self.attempt,
                    rank=rank,
                    what=record.what,
                    step=record.step,
                    value=record.value,
                    row=record.row,
                    heard_at=now,
                )
            )
        return record, ""

    def is_fresh(self, now: float) -> bool:
        return bool(self._not_finite) and now - self._not_finite[-1].heard_at < FRESH

    def account(self) -> RankNumbers:
        return RankNumbers(
            not_finite=tuple(self._not_finite), differences=self.replicas.differences
        )
