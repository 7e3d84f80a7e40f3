"""Reports of drills as they come: kept, broken, skipped and unknown rows, with their timelines."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from holdfast.analysis.drill.outcome import (
    BrokenPromise,
    DrillReport,
    DrillRow,
    Happened,
    TracePoint,
    TrainedAttempt,
)
from holdfast.analysis.drill.rehearsal import JobShape

STARTED = 1_794_848_400.0
STEPS, FAULT_AT, SAVED_EVERY = 60, 24, 10
STEP, START = 0.15, 2.2
"""seconds: a step, and the start of ranks up to their first"""

JOB = JobShape(
    ranks=4,
    steps=STEPS,
    saved_after=tuple(range(SAVED_EVERY, STEPS + 1, SAVED_EVERY)),
    patience=8.0,
)


def loss_at(step: int) -> float:
    return 1.8 * math.exp(-step / 18) + 0.12 + 0.03 * math.sin(step * 1.7)


def trained(began: float, first: int, last: int, *, off: float = 0.0) -> TrainedAttempt:
    points: list[TracePoint] = [
        (began + START + STEP * (step - first), step, loss_at(step) + off)
        for step in range(first, last + 1)
    ]
    return TrainedAttempt(began=began, points=tuple(points))


def a_row(drill: str = "rank-killed", **changed: Any) -> DrillRow:
    """A rank was killed at step 24: noticed, named, resumed from step 20, everything identical."""
    fields: dict[str, Any] = {
        "drill": drill, "does": f"SIGKILL to rank 2 at step {FAULT_AT}", "status": "kept",
        "noticed": 0.31, "named": f"{drill}: rank 2", "named_right": True, "recovered": 4.12,
        "repeated": 4, "data": "identical", "loss": "identical", "weights": "identical",
        "seconds": 21.0, "repeats_itself": True, "folder": f"drills/261116-171500-train/01-{drill}",
    }  # fmt: skip
    row = DrillRow(**{**fields, **changed})
    if row.status == "skipped" or "timeline" in changed:
        return row
    return msgspec.structs.replace(row, **_story(row))


def _story(row: DrillRow) -> dict[str, Any]:
    """When what happened, as the figures of the row say."""
    start = STARTED + 30
    first = trained(start, 1, FAULT_AT)
    fault = first.points[-1][0] + 0.02
    if row.recovered is None:
        first = trained(start, 1, STEPS)  # it goes on
    told = [Happened(t=start, what="attempt 0 starts", kind="start"),
            Happened(t=fault, what=row.does, kind="fault")]  # fmt: skip
    attempts = [first]
    if row.noticed is not None:
        told.append(Happened(t=fault + row.noticed, what=row.named, kind="said"))
    if row.recovered is not None:
        began = fault + row.recovered - START
        resumed = FAULT_AT - (row.repeated or 0)
        off = 0.0 if row.loss in ("identical", "same") else 0.11
        second = trained(began, resumed + 1, STEPS, off=off)
        attempts.append(second)
        told += [
            Happened(t=began - 0.4, what="ranks ended", kind="action"),
            Happened(t=began, what="attempt 1 starts", kind="start"),
            Happened(t=fault + row.recovered, what=f"resumed at step {resumed}", kind="resume"),
        ]
    end = max(attempts[-1].points[-1][0], fault + (row.noticed or 0)) + 0.6
    told.append(Happened(t=end, what="the job ended", kind="end"))
    return {"timeline": tuple(told), "trained": tuple(attempts)}


BROKEN = (
    a_row(
        "save-killed",
        does="SIGKILL to rank 0 while it saves, at step 30",
        status="broken",
        recovered=5.3,
        repeated=24,
        named="rank-killed: rank 0",
        broken=(
            BrokenPromise(
                promise="repeat",
                seen="the job resumed at step 0 although checkpoints of steps 10 and 20 were there",
                fix="write the checkpoint under another name and rename it with `os.replace(tmp, "
                "path)` when it is complete",
                slug="restart-from-zero",
            ),
        ),
    ),
    a_row(
        "rank-stuck",
        does="rank 1 hangs in Python at step 24",
        status="broken",
        noticed=8.4,
        named="straggler: rank 3",
        named_right=False,
        recovered=12.8,
        loss="differs",
        weights="differs",
        left=("process 4711: python train.py --lr 0.1", "/dev/shm/torch_4711_0"),
        broken=(
            BrokenPromise(promise="name", seen="named straggler on rank 3; it was rank 1"),
            BrokenPromise(
                promise="loss",
                seen="the loss of step 21 was 1.0324 after the restart and 0.9124 in the reference",
                fix="save and restore the state of the random number generators: "
                "`torch.get_rng_state()`",
            ),
            BrokenPromise(promise="clean", seen="2 things were left behind"),
        ),
    ),
)
SKIPPED = (
    a_row("link-cut", status="skipped", why="needs several hosts: add `--hosts 2`"),
    a_row("mtu-black-hole", status="skipped", why="needs several hosts: add `--hosts 2`"),
    a_row("gpu-oom", status="skipped", why="no GPU here"),
)
UNPROVEN = a_row(
    "external-sigterm",
    status="unproven",
    unchecked=("data: the inputs of a step could not be read",),
    remarks=("the loss was compared with a tolerance of 1e-06, measured before the fault",),
    does="SIGTERM to the launcher at step 24",
    named="external-sigterm: rank 0",
    data="unknown",
    loss="same",
    weights="same",
)
GOES_ON = a_row(
    "straggler",
    does="rank 3 gets a tenth of a core from step 24 on",
    noticed=2.2,
    named="straggler: rank 3",
    recovered=None,
    repeated=None,
)


def a_report(*rows: DrillRow, **changed: Any) -> DrillReport:
    fields: dict[str, Any] = {
        "command": ("examples/train.py", "--ckpts", "{folder}/ckpts"), "runner": "holdfast",
        "ranks": 4, "hosts": 1, "steps": STEPS, "reference_seconds": 11.4,
        "rows": rows or (a_row(), a_row("checkpoint-corrupt/truncated", recovered=5.0, repeated=14),
                         GOES_ON, UNPROVEN, *BROKEN, *SKIPPED),
        "seconds": 141.0, "started": STARTED, "patience": 8.0,
        "reference": trained(STARTED, 1, STEPS), "folder": "drills/261116-171500-train",
        "page": "drills/261116-171500-train/report.html",
        "versions": {"holdfast": "0.3.0", "python": "3.11.2", "torch": "2.13.0"},
    }  # fmt: skip
    return DrillReport(**{**fields, **changed})
