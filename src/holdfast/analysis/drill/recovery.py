"""What became of the job: did it restart, end, or go on as it must, and from which step?"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.drill.align import AlignedAttempt
from holdfast.analysis.drill.case import Case
from holdfast.analysis.drill.injection import Then
from holdfast.analysis.drill.outcome import BrokenPromise

RESUME = (
    "save model, optimizer, step, random numbers and data position, and load the newest checkpoint "
    "at every start; `holdfast.Checkpoint(folder, state)` does both"
)
KEEP_TWO = (
    "keep at least two checkpoints, verify one before it is loaded, and fall back to the previous "
    "one; holdfast.Checkpoint does"
)


def recover_broken(case: Case) -> str:
    """What was seen instead of a recovery; '' when it recovered as it must."""
    return _too_early(case) or _EXPECTED[case.injection.then](case) or _not_to_the_end(case)


def _too_early(case: Case) -> str:
    early = [one for one in case.attempts[1:] if one not in case.after]
    if not early:
        return ""
    before = case.fault_at - early[0].attempt.began
    return f"the ranks were restarted {before:.1f} s before the fault came"


def _restarts(case: Case) -> str:
    if len(case.observed.starts) > 1:
        return f"{_ended(case, 0)} instead of restarting the ranks"
    return _no_steps_after(case)


def _no_steps_after(case: Case) -> str:
    if case.trained_after:
        return ""
    again = "the ranks were not started again"
    if case.after:
        times = text.counted(len(case.after), "time")
        again = f"the ranks were started again ({times}), but none took a step"
    return f"{again}; {_ended(case, -1)}"


def _was_done(case: Case) -> bool:
    """A short job that is told to stop may take its last steps first: nothing was left to do."""
    return case.furthest >= case.reference.steps and case.observed.exit_codes[-1] == 0


def _ends(case: Case) -> str:
    if case.observed.exit_codes[0] is None:
        return f"{_ended(case, 0)} after the fault"
    if len(case.observed.starts) < 2:
        return f"{_ended(case, 0)}, and was not started again"
    by_itself = [one for one in case.after if one.attempt.start == 0]
    if by_itself:
        return "the ranks were started again although the run had to end"
    return "" if _was_done(case) else _no_steps_after(case)


def _gives_up(case: Case) -> str:
    if case.observed.exit_codes[0] is None or len(case.observed.starts) < 2:
        return _ends(case)
    by_itself = [one for one in case.after if one.attempt.start == 0]
    if len(by_itself) > 1:
        return f"the ranks were started again {len(by_itself)} times, and failed each time"
    return _no_steps_after(case)


def _goes_on(case: Case) -> str:
    if not case.after:
        return ""
    after = case.after[0].attempt.began - case.fault_at
    return f"the ranks were restarted {after:.1f} s after the fault, which training can survive"


def _recovers(case: Case) -> str:
    return _no_steps_after(case) if case.after else ""


def _refuses(case: Case) -> str:
    first = [one for one in case.attempts if one.attempt.start == 0 and one.attempt.taken]
    if first:
        return "the job trained, although it could not have started"
    if case.observed.exit_codes[0] in (None, 0):
        return _ended(case, 0)
    if len(case.observed.starts) < 2:
        return f"{_ended(case, 0)}, and was not started again without the fault"
    trained = any(one.attempt.start and one.attempt.taken for one in case.attempts)
    return "" if trained else f"without the fault no rank took a step; {_ended(case, -1)}"


_EXPECTED = {
    Then.RESTARTS: _restarts,
    Then.ENDS: _ends,
    Then.GIVES_UP: _gives_up,
    Then.GOES_ON: _goes_on,
    Then.RECOVERS: _recovers,
    Then.REFUSES: _refuses,
}


def _not_to_the_end(case: Case) -> str:
    if case.observed.exit_codes[-1] != 0:
        return _ended(case, -1)
    world = case.injection.world or case.rehearsal.job.ranks
    if other := [one.attempt.world for one in case.trained_after if one.attempt.world != world]:
        return f"it went on with {text.counted(other[-1], 'rank')} instead of {world}"
    unknown = any(one.trace is None and one.attempt.taken for one in case.attempts)
    if unknown or case.furthest >= case.reference.steps:
        return ""
    return f"the run exited with code 0 after step {case.furthest} of {case.reference.steps}"


def _ended(case: Case, start: int) -> str:
    code = case.observed.exit_codes[start] if case.observed.exit_codes else None
    return "the run did not end by itself" if code is None else f"the run exited with code {code}"


def recovered_after(case: Case) -> float | None:
    """Seconds from the fault to the first new step."""
    if _went_on(case):
        times = _next_steps(case)
    else:
        trained = [one for one in case.attempts if one in case.after or one.attempt.start]
        if case.injection.then is Then.GIVES_UP:
            trained = [one for one in trained if one.attempt.start]
        times = [one.attempt.first_step for one in trained if one.attempt.first_step is not None]
    return max(min(times) - case.fault_at, 0.0) if times else None


def _went_on(case: Case) -> bool:
    then = case.injection.then
    return then is Then.GOES_ON or (then is Then.RECOVERS and not case.after)


def _next_steps(case: Case) -> list[float]:
    """Of a job that goes on: steps that no rank had taken when the fault came."""
    steps = [
        (record.step, record.t)
        for one in case.attempts
        for rank in one.attempt.ranks.values()
        for record in rank.steps
    ]
    before = max((step for step, t in steps if t <= case.fault_at), default=0)
    return [t for step, t in steps if step > before and t > case.fault_at]


# --- steps done again ----------------------------------------------------------------------------


def repeated(case: Case) -> int | None:
    if not case.attempts or case.injection.then is Then.REFUSES:
        return 0
    counts = [one.repeated for one in case.trained_after]
    known = [count for count in counts if count is not None]
    if not _went_on(case) and not case.trained_after:
        return None
    return sum(known) if len(known) == len(counts) else None


def resumed_too_early(case: Case) -> BrokenPromise | None:
    for one in case.trained_after:
        if one.resumed.step is not None and (broken := _lost_work(case, one, one.resumed.step)):
            return broken
    return None


def _lost_work(case: Case, one: AlignedAttempt, step: int) -> BrokenPromise | None:
    saved, costs = case.saved, case.injection.costs_saves
    newest = case.newest_whole
    if step < newest:
        there = f"although a checkpoint of step {newest} was there"
        return _early(case, one, step, there, RESUME)
    if step == 0 and one.furthest_before > 0:
        if not case.rehearsal.job.saved_after and not saved:
            return _early(case, one, step, "since it saves no checkpoint", RESUME)
        if (
            costs
            and sum(at < case.rehearsal.at_step for at in case.rehearsal.job.saved_after) > costs
        ):
            there = "since the checkpoint that was damaged was the only one it had kept"
            return _early(case, one, step, there, KEEP_TWO)
    return None


def _early(case: Case, one: AlignedAttempt, step: int, there: str, fix: str) -> BrokenPromise:
    refused = sorted({path for seen in case.observed.attempts for path in seen.refused})
    if refused:
        fix = (
            f"it was kept from writing to {text.name(refused[0])}, outside of the drill's folder: "
            "let it save below the folder it runs in, or pass `{folder}` to the script"
        )
    fix = case.injection.fails_without or fix
    lost = f"{text.counted(one.furthest_before - step, 'step')} had to be done again"
    if step == 0:
        seen = f"the job restarted at step 0 {there}: {lost}"
        return BrokenPromise(promise="repeat", seen=seen, fix=fix, slug="restart-from-zero")
    return BrokenPromise(
        promise="repeat", seen=f"the job resumed at step {step} {there}: {lost}", fix=fix
    )


def early_unknown(case: Case) -> str:
    """Why it cannot be told whether too many steps were repeated; '' when it can."""
    earlier = [step for step in case.rehearsal.job.saved_after if step < case.rehearsal.at_step]
    for one in case.trained_after:
        if one.resumed.step is None:
            return one.resumed.why
        if one.resumed.step < min(earlier, default=0) and not case.saved:
            return "which checkpoints were there when the fault came is not known"
    return ""
