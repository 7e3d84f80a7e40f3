"""Orders to a rank to break itself: as often as asked, and no oftener."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.analysis.drill.injection import BreakInside
from holdfast.analysis.drill.rehearsal import JobShape, Rehearsal
from holdfast.drill.acts.inside import InsideCarrier
from holdfast.drill.layout import JobFolder
from holdfast.drill.stage import Stage


def a_stage(folder: Path) -> Stage:
    job = JobShape(ranks=4, steps=60, saved_after=(10, 20))
    rehearsal = Rehearsal(name="restart-loop", rank=2, at_step=23, job=job)
    return Stage(rehearsal, JobFolder(folder).make(), checkpoints=None)


def obey(stage: Stage, attempt: int) -> dict[str, object]:
    """As the rank does."""
    order = stage.folder.order(2)
    told: dict[str, object] = json.loads(order.read_text())
    order.rename(f"{order}.taken")
    records = [
        {"kind": "began", "t": 1.0 + attempt, "rank": 2, "world": 4, "attempt": attempt,
         "pid": 100 + attempt, "host": "h"},
        {"kind": "gate", "t": 2.0 + attempt, "step": told["step"], "how": told["how"]},
    ]  # fmt: skip
    file = stage.folder.witness / f"rank-2.attempt-{attempt}.{100 + attempt}.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in records))
    return told


def test_the_rank_is_told_once_at_the_step_of_the_rehearsal(tmp_path: Path) -> None:
    stage, act = a_stage(tmp_path / "1"), BreakInside(how="hang", seconds=5)
    InsideCarrier().prepare(act, stage)
    assert obey(stage, 0) == {"step": 23, "how": "hang", "seconds": 5}
    InsideCarrier().inject(act, stage)
    assert not stage.folder.order(2).exists()


def test_a_further_attempt_is_told_again_at_the_same_step(tmp_path: Path) -> None:
    stage, act = a_stage(tmp_path / "1"), BreakInside(how="raise", times=2)
    InsideCarrier().prepare(act, stage)
    first = obey(stage, 0)
    InsideCarrier().inject(act, stage)
    assert obey(stage, 1) == first == {"step": 23, "how": "raise", "seconds": 0.0}
    InsideCarrier().inject(act, stage)
    assert not stage.folder.order(2).exists()
