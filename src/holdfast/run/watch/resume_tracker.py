"""Where a job stands over all its attempts: steps, saves, resumes, and what is repeated. Pure.

The optimizer hook counts the steps of one attempt. With the step at which the attempt began they
make the step of the whole job: what was reached before a fault, less where the next attempt
began, is what is done twice.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from holdfast.analysis.scene import attempt_start
from holdfast.analysis.scene.attempt_start import AttemptStart
from holdfast.analysis.scene.checkpoints import Account, FirstStep, Kept, Resumed, Saved, SetAside

MOST_SAVES = 100
"""kept of a long run: enough to know their habit"""
MOST = 20
"""checkpoints set aside that are remembered"""

Event = Mapping[str, Any]
K = TypeVar("K", bound=Kept)


class Told(NamedTuple):
    """One event, and what came of it."""

    account: Account
    kind: str
    record: dict[str, Any]
    """for the journal: as the rank told it, and what we make of it"""
    sentence: str
    """for the screen; '' when there is no need"""


def take(account: Account, rank: int, attempt: int, event: Event) -> Told:
    """Add one event to the account. What is not as it should be is journalled, and no more."""
    kind = str(event["kind"])
    record = {**event, "rank": rank, "attempt": attempt}
    record.pop("kind")
    record["told_at"] = record.pop("t", None)
    told = _TAKE.get(kind, _no_more)(account, record)
    return told._replace(kind=kind)


def next_attempt(account: Account, steps: int) -> Account:
    """The attempt that had taken so many steps is over."""
    reached = max(account.reached, account.base + steps, *(s.step for s in account.saves[-1:]), 0)
    return msgspec.structs.replace(account, reached=reached, base=0)


def _no_more(account: Account, record: dict[str, Any]) -> Told:
    return Told(account, "", record, "")


def _as(kind: type[K], record: dict[str, Any]) -> K | None:
    try:
        return msgspec.convert(record, type=kind, strict=False)
    except msgspec.ValidationError:
        return None


def _resume(account: Account, record: dict[str, Any]) -> Told:
    resumed = _as(Resumed, record)
    if resumed is None:
        return _no_more(account, record)
    account = msgspec.structs.replace(
        account, resumed=(*account.resumed, resumed), base=resumed.step
    )
    record |= repeated(account, resumed.attempt)
    if not resumed.path:
        return Told(account, "", record, "")
    again = _again(account, resumed.attempt)
    also = f" (accepted: {', '.join(resumed.accepted)})" if resumed.accepted else ""
    where = f"rank {record['rank']} resumed at step {resumed.step} from {resumed.path}"
    return Told(account, "", record, f"{where}{also}{again}")


def _saved(account: Account, record: dict[str, Any]) -> Told:
    saved = _as(Saved, {**record, "at": record["told_at"]})
    if saved is None:
        return _no_more(account, record)
    saves = (*account.saves, saved)[-MOST_SAVES:]
    recovered = f"saving works again: step {saved.step} is safe in {saved.path}"
    told = recovered if account.saves_failed else ""
    return Told(msgspec.structs.replace(account, saves=saves, saves_failed=0), "", record, told)


def _save_failed(account: Account, record: dict[str, Any]) -> Told:
    failed = account.saves_failed + 1
    account = msgspec.structs.replace(account, saves_failed=failed)
    if failed > 1:  # said once, until one succeeds: the journal has them all
        return Told(account, "", record, "")
    number = record.get("errno")
    name = errno.errorcode.get(number, "") if isinstance(number, int) else ""
    why = f"{record.get('why', '')}" + (f" ({name})" if name else "")
    where = f" in {record['where']}" if record.get("where") else ""
    # The commonest question then: how much is at stake?
    safe = f"step {account.saves[-1].step} is safe" if account.saves else "nothing is saved yet"
    return Told(
        account,
        "",
        record,
        f"save of step {record.get('step', '?')} failed: {why}{where}; {safe}, training goes on "
        "and the next save is tried as planned",
    )


def _set_aside(account: Account, record: dict[str, Any]) -> Told:
    aside = _as(SetAside, record)
    if aside is None:
        return _no_more(account, record)
    kept = (*account.set_aside, aside)[-MOST:]
    # The notice of checkpoint-corrupt or -incomplete says it.
    return Told(msgspec.structs.replace(account, set_aside=kept), "", record, "")


def _first_step(account: Account, record: dict[str, Any]) -> Told:
    seen = _as(FirstStep, record)
    if seen is None:
        return _no_more(account, record)
    account = msgspec.structs.replace(account, first_steps=(*account.first_steps, seen))
    if any(resumed.attempt == seen.attempt for resumed in account.resumed):
        return Told(account, "", record, "")  # our library told exactly
    # Before the first step a fresh optimizer has counted 0, and so has the job.
    account = msgspec.structs.replace(account, base=seen.optimizer_step or 0)
    guess = attempt_start.of_attempt(account, seen.attempt)
    if guess is None or not seen.attempt or not account.reached:
        return Told(account, "", record, "")
    record |= {"guess": guess.what, "why": guess.why, "sure": guess.sure}
    known = guess.what == "zero" or seen.optimizer_step
    record |= repeated(account, seen.attempt) if known else {}
    return Told(account, "", record, _began(account, seen, guess))


def _began(account: Account, seen: FirstStep, guess: AttemptStart) -> str:
    if guess.what == "zero":
        return ""  # the notice of restart-from-zero says it
    if guess.what == "unknown":
        return f"whether the job resumed or began again cannot be told: {guess.why}"
    if seen.optimizer_step:
        return f"resumed: {guess.why}{_again(account, seen.attempt)}"
    return f"the job seems to have resumed: {guess.why}"


def repeated(account: Account, attempt: int) -> dict[str, int]:
    """What a restart costs in steps; nothing where there was none."""
    if not attempt or not account.reached:
        return {}
    return {"reached": account.reached, "repeated": max(0, account.reached - account.base)}


def _again(account: Account, attempt: int) -> str:
    found = repeated(account, attempt)
    if not found:
        return ""
    steps = found["repeated"]
    if not steps:
        return "; no step is repeated"
    are = "step is" if steps == 1 else "steps are"
    return f"; the job had reached {account.reached}: {steps} {are} repeated"


_TAKE = {
    "resume": _resume,
    "saved": _saved,
    "save-failed": _save_failed,
    "set-aside": _set_aside,
    "first-step": _first_step,
}
