"""Where a job stands over all its attempts, from what its ranks told."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.job.journal_records import RankEventRecord, kind_of
from holdfast.analysis.scene.checkpoints import CheckpointAccount
from holdfast.run.runs import report_saves
from holdfast.run.watch import resume_tracker
from holdfast.run.watch.resume_tracker import TrackedEvent
from tests.run.journals import as_written

PATH = "/c/step-000001200"
RESUME: dict[str, Any] = {"path": PATH, "world_size": 4, "saved_world": 4, "accepted": []}
COST: dict[str, Any] = {"path": PATH, "bytes": 9, "stall": 0.1, "seconds": 1.0}
FIRST: dict[str, Any] = {"digest": "aa", "optimizer_step": 0, "loaded": False}


def tell(
    account: CheckpointAccount, kind: str, *, attempt: int = 0, rank: int = 0, **fields: Any
) -> TrackedEvent:
    return resume_tracker.track(account, rank, attempt, {"kind": kind, "t": 1.7e9, **fields})


def journalled(event: TrackedEvent) -> dict[str, Any]:
    assert event.record
    (record,) = as_written([event.record])
    return record


def test_a_resume_says_how_many_steps_are_repeated() -> None:
    account = tell(CheckpointAccount(), "saved", step=1200, **COST).account
    account = resume_tracker.next_attempt(account, 1237)
    told = tell(account, "resume", attempt=1, step=1200, **RESUME)
    assert told.sentence == (
        f"rank 0 resumed at step 1200 from {PATH}; the job had reached step 1237: "
        "37 steps are repeated"
    )
    assert (journalled(told)["reached"], journalled(told)["repeated"]) == (1237, 37)
    assert told.account.base == 1200
    again = resume_tracker.next_attempt(told.account, 50)
    assert again.reached == 1250
    one = tell(again, "resume", attempt=2, step=1249, **RESUME).sentence
    assert one.endswith("the job had reached step 1250: 1 step is repeated")
    none = tell(again, "resume", attempt=2, step=1250, **RESUME).sentence
    assert none.endswith("; no step is repeated")


def test_the_first_start_is_calm() -> None:
    fresh = tell(CheckpointAccount(), "resume", step=0, **{**RESUME, "path": "", "saved_world": 0})
    assert fresh.sentence == ""
    earlier = tell(CheckpointAccount(), "resume", step=1200, **RESUME)
    assert earlier.sentence == f"rank 0 resumed at step 1200 from {PATH}"
    assert "repeated" not in journalled(earlier)
    accepted = tell(CheckpointAccount(), "resume", step=9, **{**RESUME, "accepted": ["config"]})
    assert "(accepted: config)" in accepted.sentence


def test_a_failed_save_is_said_until_one_succeeds_but_rarely() -> None:
    failed: dict[str, Any] = {"why": "Input/output error", "errno": 5}
    first = tell(CheckpointAccount(), "save-failed", step=100, unsaved=40.0, **failed)
    assert first.sentence == (
        "save of step 100 failed: Input/output error (EIO); nothing is saved yet; training "
        "continues, next save as planned"
    )
    second = tell(first.account, "save-failed", step=150, unsaved=79.0, **failed)
    assert second.sentence == ""
    third = tell(second.account, "save-failed", step=200, unsaved=80.0, **failed)
    assert third.sentence.startswith("save of step 200 failed"), "twice as long without a save"
    fourth = tell(third.account, "save-failed", step=210, unsaved=81.0, **failed)
    assert fourth.sentence == ""
    good = tell(fourth.account, "saved", step=300, **COST)
    assert good.sentence == f"saving works again: saved step 300 in {PATH}"
    again = tell(good.account, "save-failed", step=400, safe=300, unsaved=9.0, **failed)
    assert "last safe step 300, 100 steps ago" in again.sentence
    assert tell(good.account, "saved", step=500, **COST).sentence == ""


def test_a_full_disk_is_left_to_its_notice_the_first_time() -> None:
    failed: dict[str, Any] = {"why": "No space left on device", "errno": 28, "safe": 40}
    first = tell(CheckpointAccount(), "save-failed", step=60, unsaved=20.0, **failed)
    assert first.sentence == ""
    assert first.account.last_failure
    assert first.account.last_failure.disk_full
    later = tell(first.account, "save-failed", step=200, unsaved=160.0, **failed)
    assert "step 200 failed" in later.sentence
    assert "last safe step 40, 160 steps ago" in later.sentence


def second_attempt(now: dict[str, Any]) -> TrackedEvent:
    account = tell(CheckpointAccount(), "first-step", **FIRST).account
    account = tell(account, "parameters-moved", step=1).account
    account = resume_tracker.next_attempt(account, 57)
    return tell(account, "first-step", attempt=1, **now)


def test_scripts_without_our_library() -> None:
    zero = second_attempt(FIRST)
    assert (zero.sentence, journalled(zero)["guess"], journalled(zero)["repeated"]) == (
        "",
        "zero",
        57,
    )
    adam = second_attempt({"digest": "bb", "optimizer_step": 40, "loaded": True})
    assert adam.sentence == (
        "resumed: its optimizer had counted 40 steps; the job had reached step 57: "
        "17 steps are repeated"
    )
    assert adam.account.base == 40
    plain = second_attempt({"digest": "bb", "optimizer_step": 0, "loaded": True})
    assert plain.sentence.startswith("the job probably resumed")
    assert "repeated" not in journalled(plain)
    unknown = second_attempt({"digest": "", "optimizer_step": 0, "loaded": True})
    assert unknown.sentence == (
        "unknown whether the job resumed or started from step 0: its parameters could not be read"
    )


def test_the_newest_checkpoint_of_the_script_is_known_with_its_step_in_the_job() -> None:
    saved: dict[str, Any] = {"step": 10, "path": "out/ckpt.pt", "optimizer": True}
    weights = {"step": 20, "path": "out/best.pt", "optimizer": False}
    found = []
    account = CheckpointAccount(base=500)
    for one in (saved, weights, {**saved, "step": 30, "path": ""}):
        account = tell(account, "script-saved", **one).account
        assert account.script_saved is not None
        found.append(account.script_saved.words)
    # Only the model is in the second.
    assert found == [*2 * ["saved out/ckpt.pt at step 510"], "saved a checkpoint at step 530"]


def test_what_our_library_told_is_not_guessed_at() -> None:
    account = resume_tracker.next_attempt(CheckpointAccount(), 57)
    account = tell(account, "resume", attempt=1, step=40, **RESUME).account
    told = tell(account, "first-step", attempt=1, **FIRST)
    assert (told.sentence, told.account.base) == ("", 40)
    assert "guess" not in journalled(told)


def test_memory_does_not_grow_with_the_run() -> None:
    account = CheckpointAccount()
    for step in range(500):
        account = tell(account, "saved", step=step, **COST).account
        account = tell(account, "set-aside", path="/x", why="y").account
    assert len(account.saves) == resume_tracker.MOST_SAVES
    assert len(account.set_aside) == resume_tracker.MOST_SET_ASIDE
    assert account.saves[-1].step == 499


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.text())
KINDS = st.sampled_from(
    ["resume", "saved", "save-failed", "set-aside", "first-step", "parameters-moved",
     "script-saved", "cadence"]
)  # fmt: skip
NAMES = st.sampled_from([*RESUME, *COST, *FIRST, "step", "why", "errno", "t", "interval", "mtbf"])


@given(KINDS | st.text(), st.dictionaries(NAMES, VALUES), st.integers(0, 3))
def test_whatever_a_rank_tells_is_taken(kind: str, fields: dict[str, Any], attempt: int) -> None:
    account = CheckpointAccount(reached=7)
    told = resume_tracker.track(account, 0, attempt, {**fields, "kind": kind})
    assert isinstance(told.sentence, str)
    assert told.record
    if isinstance(told.record, RankEventRecord):
        assert told.record.told["kind"] == kind
        assert told.account == account, "what is not understood changes nothing"
    else:
        assert kind_of(told.record) == kind
    records = [msgspec.structs.replace(told.record, t=float(at)) for at in range(4)]
    assert all(isinstance(line, str) for line in report_saves.lines(records))
