"""What a run's losses and replicas came to, from its journal. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.job.journal_records import (
    JournalRecord,
    LaunchRecord,
    NotFiniteRecord,
    ReplicasRecord,
)

STEPS_SHOWN = 3
NOT_VERIFIED = "replicas were not compared: no rank reported a digest"


def lines(records: Sequence[JournalRecord]) -> list[str]:
    """For the report at the end; nothing for a run that reported none."""
    verified = [_verified(record) for record in records if isinstance(record, ReplicasRecord)]
    if not verified and any(isinstance(r, LaunchRecord) and r.verify_replicas for r in records):
        verified = [NOT_VERIFIED]
    seen = [record for record in records if isinstance(record, NotFiniteRecord)]
    losses = _not_finite([one for one in seen if one.what == "loss"])
    return [*verified, *losses]


def _verified(record: ReplicasRecord) -> str:
    if not record.checks:
        return f"replicas were not compared: {'; '.join(record.refused[:2])}"
    times = text.counted(record.checks, "check")
    if record.different:
        at = f"not equal at step {record.different_at}"
        found = f"{text.ranks(record.different)} {at}"
    else:
        found = f"equal, the last time at step {record.last_step}"
    on_gpu = f"{record.gpu * 1e3:.2g} ms of the GPU and " if record.gpu else ""
    cost = f"{on_gpu}{record.host * 1e3:.2g} ms of the script each, {record.share:.2%} of the time"
    also = f"; not compared: {record.refused[0]}" if record.refused else ""
    return f"replicas: {times}, {found}; {cost}{also}"


def _not_finite(seen: Sequence[NotFiniteRecord]) -> list[str]:
    """Those of single steps, too, which get no notice."""
    if not seen:
        return []
    steps = sorted({(one.step, one.rank) for one in seen})
    shown = ", ".join(f"step {step} on rank {rank}" for step, rank in steps[:STEPS_SHOWN])
    more = f" and {len(steps) - STEPS_SHOWN} more" if len(steps) > STEPS_SHOWN else ""
    return [f"the loss was not finite at {shown}{more}"]
