"""The undisturbed job: kept for later drills of the same job, refused where it shows nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from holdfast.analysis.drill.outcome import Observed
from holdfast.analysis.drill.records import BeganRecord, RankAttempt, StepRecord
from holdfast.drill import undisturbed
from holdfast.drill.undisturbed import ReferenceFile
from holdfast.errors import ConfigError

replace = msgspec.structs.replace
BEGAN = BeganRecord(t=1.0, rank=0, world=1, attempt=0, pid=1, host="h")
STEP = StepRecord(t=2.0, step=1)


def observed(*, steps: int = 1, code: int | None = 0, refused: tuple[str, ...] = ()) -> Observed:
    attempt = RankAttempt(began=BEGAN, steps=(STEP,) * steps, refused=refused)
    return Observed(attempts=(attempt,), starts=(0.0,), exit_codes=(code,), folder="/d/reference")


@pytest.mark.parametrize(
    ("seen", "saying", "hint"),
    [
        (observed(code=3), "nothing is done to it (exit code 3)", "--link PATH"),
        (observed(code=None), "(exit code None)", "--link PATH"),
        (observed(steps=0), "no rank was seen to take a step", "an optimizer of torch"),
        (observed(refused=("/data/my runs/last.pt",)), "/data/my runs/last.pt",
         "--writes-to '/data/my runs'"),
        (observed(refused=("/d/x",), code=1), "wants to write to /d/x", "{folder}"),
    ],
)  # fmt: skip
def test_what_nothing_can_be_compared_with_is_refused(
    seen: Observed, saying: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        undisturbed.refuse_unusable(seen)
    assert saying in refusal.value.sentence
    assert "/d/reference/screens" in refusal.value.sentence
    assert hint in refusal.value.hint


def test_where_a_link_leads_is_said(tmp_path: Path) -> None:
    """What is refused has a name inside of the drill's folder: it says nothing."""
    work, mine = tmp_path / "reference" / "work", tmp_path / "mine"
    work.mkdir(parents=True)
    mine.mkdir()
    (work / "main.csv").symlink_to(mine / "main.csv")
    seen = observed(refused=(str(work / "main.csv"),))
    with pytest.raises(ConfigError) as refusal:
        undisturbed.refuse_unusable(replace(seen, folder=str(tmp_path / "reference")))
    assert f"to main.csv, which is linked to {mine}/main.csv, which is" in refusal.value.sentence
    assert f"move {mine}/main.csv away" in refusal.value.hint
    assert f"--writes-to {mine}" in refusal.value.hint


def test_what_was_left_out_is_offered() -> None:
    with pytest.raises(ConfigError) as refusal:
        undisturbed.refuse_unusable(observed(code=1), ["my data", "last.pt"])
    assert "--link 'my data' (left out" in refusal.value.hint


def test_a_job_that_trained_and_ended_well_is_used() -> None:
    undisturbed.refuse_unusable(observed())


def test_it_is_used_again_for_the_same_job_only(tmp_path: Path) -> None:
    command = ("--nproc-per-node", "2", "train.py")
    kept = ReferenceFile(runner="torchrun", command=command, observed=observed())
    undisturbed.keep(kept, tmp_path)
    assert undisturbed.earlier(str(tmp_path), command) == kept
    with pytest.raises(ConfigError, match="that was another job: --nproc-per-node 2"):
        undisturbed.earlier(str(tmp_path), ("train.py",))
    with pytest.raises(ConfigError, match="no undisturbed run of a drill"):
        undisturbed.earlier(str(tmp_path / "gone"), command)
    (tmp_path / undisturbed.FILE).write_text('{"runner": 7}')
    with pytest.raises(ConfigError, match="another version of holdfast, or is damaged"):
        undisturbed.earlier(str(tmp_path), command)
