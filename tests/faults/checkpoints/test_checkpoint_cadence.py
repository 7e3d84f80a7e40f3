from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.machine import CheckpointItem, Unread
from holdfast.analysis.scene.checkpoints import CheckpointAccount, Saved
from holdfast.analysis.scene.scene import Failure, Scene
from tests.faults.checkpoints.test_checkpoint_corrupt import NAMED, item
from tests.faults.machines import a_machine, a_plan
from tests.faults.table import (
    check_table,
    not_applicable,
    notices,
    overlooks,
    run_table,
    silent,
    skips,
    speaks,
)
from tests.run.scenes import NOW, a_scene

HOUR = 3600.0


def series(interval: float, count: int = 4, **changes: Any) -> tuple[CheckpointItem, ...]:
    return tuple(
        item(path=f"/home/kim/ckpts/step_{9 - number}.pt", age=60 + number * interval, **changes)
        for number in range(count)
    )


test_check = check_table(
    "checkpoint-cadence",
    speaks(
        "note",
        a_machine(NAMED, checkpoints=series(6 * HOUR)),
        saying=[
            "checkpoints are saved about every 6 hours",
            "saving every 6 hours loses about 12 % of the time, every 12 minutes about 0.86 %",
            "the cost of a save and the failure rate of this job are assumptions",
            'every="auto"',
            "step_9.pt",
        ],
    ),
    speaks(
        "note",  # a slow disk: our own say how long they were written
        a_machine(NAMED, checkpoints=series(6 * HOUR, kind="holdfast", seconds=600.0)),
        saying=["save every 40 minutes"],
    ),
    silent(a_machine(NAMED, checkpoints=series(600.0))),
    silent(a_machine(NAMED, checkpoints=series(HOUR))),
    silent(a_machine(NAMED, checkpoints=series(5.0))),  # what a save costs is not seen on files
    silent(  # one kept for good, long ago, is no sign of how often they are saved
        a_machine(
            NAMED,
            checkpoints=(*series(600.0), item(path="/home/kim/ckpts/step_1.pt", age=200 * HOUR)),
        )
    ),
    silent(  # evening saves of one program, beside the frequent ones of another
        a_machine(
            NAMED,
            checkpoints=(
                *series(600.0),
                *(item(path=f"/home/kim/ckpts/old/{n}.pt", age=n * 9 * HOUR) for n in (1, 2, 3)),
            ),
        )
    ),
    not_applicable(a_machine(NAMED, checkpoints=series(6 * HOUR, 2)), saying=["fewer than 3"]),
    not_applicable(
        a_machine(NAMED, checkpoints=series(6 * HOUR, problem="cut short")), saying=["fewer than 3"]
    ),
    not_applicable(a_machine(a_plan()), saying=["--ckpt DIR"]),
    skips(a_machine(NAMED, checkpoints=Unread(why="the disk hangs")), saying=["the disk hangs"]),
)


def job(interval: float, *, stall: float = 0.5, count: int = 4, **changes: Any) -> Scene:
    """A job of a day that has saved so often so far."""
    saves = tuple(
        Saved(
            attempt=0, step=100 * n, path=f"/ckpts/step-{n}", bytes=1 << 30, stall=stall,
            seconds=2.0, at=1e9 + n * interval,
        )
        for n in range(count)
    )  # fmt: skip
    scene = a_scene(started_at=NOW - 24 * HOUR, checkpoints=CheckpointAccount(saves=saves))
    return msgspec.structs.replace(scene, **changes)


def failures(count: int) -> tuple[Failure, ...]:
    return (Failure(slug="rank-killed", ranks=(1,), step=50, lasted=HOUR),) * count


test_run = run_table(
    "checkpoint-cadence",
    notices(
        job(5 * HOUR),
        ranks=[],
        certain=False,
        saying=["saving every 5 hours loses about 5", "a failure is expected every 48 hours",
                "every 7 minutes", "paused training for 0.5 s", "written in 2 s"],
    ),
    notices(
        job(2.0, stall=0.5),
        ranks=[],
        certain=False,
        saying=["saving every 2 s loses about 20 %", "step 300"],
    ),
    notices(  # the same interval was fine before the job began to fail
        job(HOUR, failures=failures(9)),
        ranks=[],
        certain=False,
        saying=["saving every 60 minutes loses", "a failure is expected every 6 hours"],
    ),
    overlooks(job(HOUR)),
    overlooks(job(300.0)),
    overlooks(job(5 * HOUR, count=2)),
    overlooks(job(5 * HOUR, attempt=1)),  # the saves are those of the attempt before
    overlooks(job(2.0, started_at=NOW - 300)),  # what a short job loses is not worth a word
    overlooks(job(0.0)),
    overlooks(a_scene(started_at=NOW - 24 * HOUR)),
)  # fmt: skip
