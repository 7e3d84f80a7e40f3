"""How far a job is, over all its attempts: steps, saves, resumes, and what is repeated. Pure.

The optimizer hook counts the steps of one attempt. With the step at which the attempt began they
make the step of the whole job: what was reached before a fault, less where the next attempt
began, is what is done twice.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict, TypeVar

import msgspec

from holdfast.analysis.job import journal_records
from holdfast.analysis.job.journal_records import (
    AttemptRecord,
    EventRecord,
    FirstStepRecord,
    ParametersMovedRecord,
    ResumeRecord,
    SavedRecord,
    SaveFailedRecord,
    ScriptSavedRecord,
    SetAsideRecord,
)
from holdfast.analysis.scene import attempt_start
from holdfast.analysis.scene.attempt_start import AttemptStart
from holdfast.analysis.scene.checkpoints import (
    CheckpointAccount,
    CheckpointEvent,
    FirstStepState,
    Resumed,
    Saved,
    SaveFailed,
    ScriptSaved,
    SetAside,
)

MOST_SAVES = 100
"""kept of a long run: enough to know how often it saves"""
SAY_AGAIN = 60.0
"""seconds without a save before a second line about it; then each time they have doubled"""
MOST_SET_ASIDE = 20
"""checkpoints set aside that are remembered"""

K = TypeVar("K", bound=CheckpointEvent)


class TrackedEvent(NamedTuple):
    """One event of a rank, and what came of it."""

    account: CheckpointAccount
    record: AttemptRecord | None
    """for the journal: as the rank reported it, and what follows from it; None for nothing"""
    sentence: str = ""
    """for the screen; '' when there is no need"""
    told: tuple[int, Mapping[str, Any]] | None = None
    """the rank, and the event as it wrote it"""


class Repeated(TypedDict, total=False):
    reached: int
    repeated: int


def track(
    account: CheckpointAccount, rank: int, attempt: int, told: Mapping[str, Any]
) -> TrackedEvent:
    """Add one event to the account. One that is not understood is journalled, and no more."""
    fields = {name: value for name, value in told.items() if name != "kind"}
    record = journal_records.event(str(told["kind"]), fields, rank=rank, attempt=attempt)
    add = _ADD.get(type(record), TrackedEvent)
    return add(account, record)


def next_attempt(account: CheckpointAccount, steps: int) -> CheckpointAccount:
    """The attempt that had taken so many steps is over."""
    reached = max(account.reached, account.base + steps, *(s.step for s in account.saves[-1:]), 0)
    return msgspec.structs.replace(account, reached=reached, base=0)


def _noun(kind: type[K], record: EventRecord) -> K:
    return msgspec.convert(record, type=kind, from_attributes=True)


def _resume(account: CheckpointAccount, record: ResumeRecord) -> TrackedEvent:
    resumed = _noun(Resumed, record)
    account = msgspec.structs.replace(
        account, resumed=(*account.resumed, resumed), base=resumed.step
    )
    record = msgspec.structs.replace(record, **repeated(account, resumed.attempt))
    if not resumed.path:
        return TrackedEvent(account, record)
    again = _again(account, resumed.attempt)
    also = f" (accepted: {', '.join(resumed.accepted)})" if resumed.accepted else ""
    where = f"rank {record.rank} resumed at step {resumed.step} from {resumed.path}"
    return TrackedEvent(account, record, f"{where}{also}{again}")


def _saved(account: CheckpointAccount, record: SavedRecord) -> TrackedEvent:
    saved = Saved(
        attempt=record.attempt,
        step=record.step,
        path=record.path,
        bytes=record.bytes,
        stall=record.stall,
        seconds=record.seconds,
        at=record.told_at or 0.0,
        any_world=record.any_world,
    )
    saves = (*account.saves, saved)[-MOST_SAVES:]
    recovered = f"saving works again: saved step {saved.step} in {saved.path}"
    sentence = recovered if account.saves_failed else ""
    account = msgspec.structs.replace(account, saves=saves, saves_failed=0)
    return TrackedEvent(account, record, sentence)


def _save_failed(account: CheckpointAccount, record: SaveFailedRecord) -> TrackedEvent:
    safe = account.saves[-1].step if record.safe is None and account.saves else record.safe
    failure = SaveFailed(
        attempt=record.attempt,
        step=record.step,
        why=record.why,
        errno=record.errno or 0,
        where=record.where,
        safe=safe,
        unsaved=record.unsaved,
    )
    before = account.last_failure
    noticed = failure.disk_full and not (
        before and before.disk_full and before.attempt == failure.attempt
    )
    first = not account.saves_failed
    due = first or record.unsaved >= max(2 * account.failure_said, SAY_AGAIN)
    account = msgspec.structs.replace(
        account,
        saves_failed=account.saves_failed + 1,
        last_failure=failure,
        failure_said=record.unsaved if due else account.failure_said,
    )
    if noticed or not due:  # the notice of disk-full says it; the journal has them all
        return TrackedEvent(account, record)
    name = errno.errorcode.get(failure.errno, "")
    why = failure.why + (f" ({name})" if name else "")
    where = f" in {failure.where}" if failure.where else ""
    return TrackedEvent(
        account,
        record,
        f"save of step {failure.step} failed: {why}{where}; {failure.at_stake}; training "
        "continues, next save as planned",
    )


def _set_aside(account: CheckpointAccount, record: SetAsideRecord) -> TrackedEvent:
    kept = (*account.set_aside, _noun(SetAside, record))[-MOST_SET_ASIDE:]
    # The notice of checkpoint-corrupt or -incomplete says it.
    return TrackedEvent(msgspec.structs.replace(account, set_aside=kept), record)


def _first_step(account: CheckpointAccount, record: FirstStepRecord) -> TrackedEvent:
    seen = _noun(FirstStepState, record)
    account = msgspec.structs.replace(account, first_steps=(*account.first_steps, seen))
    if any(resumed.attempt == seen.attempt for resumed in account.resumed):
        return TrackedEvent(account, record)  # our library reported it exactly
    # Before the first step a fresh optimizer has counted 0, and so has the job.
    account = msgspec.structs.replace(account, base=seen.optimizer_step or 0)
    guess = attempt_start.of_attempt(account, seen.attempt)
    if guess is None or not seen.attempt or not account.reached:
        return TrackedEvent(account, record)
    known = guess.what == "zero" or seen.optimizer_step
    record = msgspec.structs.replace(
        record,
        guess=guess.what,
        why=guess.why,
        sure=guess.sure,
        **(repeated(account, seen.attempt) if known else {}),
    )
    return TrackedEvent(account, record, _began(account, seen, guess))


def _moved(account: CheckpointAccount, record: ParametersMovedRecord) -> TrackedEvent:
    starts = tuple(
        msgspec.structs.replace(one, moved=one.moved or one.attempt == record.attempt)
        for one in account.first_steps
    )
    return TrackedEvent(msgspec.structs.replace(account, first_steps=starts), record)


def _script_saved(account: CheckpointAccount, record: ScriptSavedRecord) -> TrackedEvent:
    before = account.script_saved
    if before is None or record.optimizer or not before.optimizer:
        saved = ScriptSaved(
            attempt=record.attempt,
            step=account.base + record.step,
            path=record.path,
            optimizer=record.optimizer,
        )
        account = msgspec.structs.replace(account, script_saved=saved)
    return TrackedEvent(account, record)


def _began(account: CheckpointAccount, seen: FirstStepState, guess: AttemptStart) -> str:
    if guess.what == "zero":
        return ""  # the notice of restart-from-zero says it
    if guess.what == "unknown":
        return f"unknown whether the job resumed or started from step 0: {guess.why}"
    if seen.optimizer_step:
        return f"resumed: {guess.why}{_again(account, seen.attempt)}"
    return f"the job probably resumed: {guess.why}"


def repeated(account: CheckpointAccount, attempt: int) -> Repeated:
    """What a restart costs in steps; nothing where there was none."""
    if not attempt or not account.reached:
        return {}
    return {"reached": account.reached, "repeated": max(0, account.reached - account.base)}


def _again(account: CheckpointAccount, attempt: int) -> str:
    found = repeated(account, attempt)
    if not found:
        return ""
    steps = found["repeated"]
    if not steps:
        return "; no step is repeated"
    are = "step is" if steps == 1 else "steps are"
    return f"; the job had reached step {account.reached}: {steps} {are} repeated"


_ADD: dict[type[EventRecord], Callable[[CheckpointAccount, Any], TrackedEvent]] = {
    ResumeRecord: _resume,
    SavedRecord: _saved,
    SaveFailedRecord: _save_failed,
    SetAsideRecord: _set_aside,
    FirstStepRecord: _first_step,
    ParametersMovedRecord: _moved,
    ScriptSavedRecord: _script_saved,
}
