from __future__ import annotations

import pytest

from holdfast.analysis.job.journal_records import (
    JournalRecord,
    LaunchRecord,
    NotFiniteRecord,
    ReplicasRecord,
)
from holdfast.run.runs import report_numbers

EQUAL = (
    "replicas: 3 checks, equal, the last time at step 20; 1.9 ms of the GPU and 3 ms of the script "
    "each, 0.01% of the time"
)
UNEQUAL = (
    "replicas: 1 check, ranks 0-2 not equal at step 30; 1 ms of the script each, 0.00% of the time"
)
LOSSES = (
    "the loss was not finite at step 7 on rank 0, step 7 on rank 1, step 9 on rank 0 and 1 more"
)


@pytest.mark.parametrize(
    ("records", "lines"),
    [
        ([LaunchRecord(world=2)], []),
        (
            [LaunchRecord(world=2, verify_replicas=10)],
            ["replicas were not compared: no rank reported a digest"],
        ),
        (
            [ReplicasRecord(checks=3, last_step=20, gpu=0.0019, host=0.003, share=0.0001)],
            [EQUAL],
        ),
        (
            [ReplicasRecord(checks=1, different=(0, 1, 2), different_at=30, host=0.001)],
            [UNEQUAL],
        ),
        ([ReplicasRecord(refused=("no DDP",))], ["replicas were not compared: no DDP"]),
        (
            [NotFiniteRecord(rank=r, step=s, value="nan") for s in (7, 9) for r in (0, 1)],
            [LOSSES],
        ),
        ([NotFiniteRecord(what="gradients", step=7, value="inf")], []),
    ],
)  # fmt: skip
def test_lines(records: list[JournalRecord], lines: list[str]) -> None:
    assert report_numbers.lines(records) == lines
