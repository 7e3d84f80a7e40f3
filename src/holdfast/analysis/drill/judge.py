"""One drill: what was promised, what was seen, which promises were broken, and what to change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from holdfast import text
from holdfast.analysis.drill import damage, other_ranks, recovery
from holdfast.analysis.drill.bounds import notice_bound
from holdfast.analysis.drill.case import Case, case_of
from holdfast.analysis.drill.compare import (
    Compared,
    SeenStep,
    compare_loss,
    compare_weights,
    repeats_its_bits,
)
from holdfast.analysis.drill.compare_data import compare_data
from holdfast.analysis.drill.damage import LoadedDamage
from holdfast.analysis.drill.injection import Injection
from holdfast.analysis.drill.naming import Naming, naming, spoken
from holdfast.analysis.drill.outcome import BrokenPromise, DrillRow, Observed
from holdfast.analysis.drill.reference import Reference
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.drill.script_faults import AS_A_RESULT, DATA, script_fault
from holdfast.analysis.drill.timeline import timeline, trained
from holdfast.analysis.drill.trace import Trace

Training = Literal["data", "loss", "weights"]


class _State(NamedTuple):
    """Of the training, against the undisturbed job."""

    data: Compared
    loss: Compared
    weights: Compared
    repeats: bool | None = None
    loaded: LoadedDamage | None = None

    def promises(self) -> Iterator[tuple[Training, Compared]]:
        yield "data", self.data
        yield "loss", self.loss
        yield "weights", self.weights


def judge(
    rehearsal: Rehearsal,
    injection: Injection,
    reference: Reference,
    observed: Observed,
    undamaged: Sequence[Trace] = (),
) -> DrillRow:
    """`undamaged`: how other drills of the job resumed, from whole checkpoints."""
    row = DrillRow(
        drill=rehearsal.name,
        does=injection.does,
        status="skipped",
        left=observed.left,
        seconds=max(observed.ended - observed.starts[0], 0.0) if observed.starts else 0.0,
        folder=observed.folder,
    )
    if len(rehearsal.job.hosts) == 1:  # what this machine is called says nothing
        said = tuple(msgspec.structs.replace(one, hosts=()) for one in observed.said)
        observed = msgspec.structs.replace(observed, said=said)
    case = case_of(rehearsal, injection, reference, observed)
    if case is None:
        return _never_came(row, rehearsal, observed)
    if why := damage.saved_too_little(case):
        return msgspec.structs.replace(row, why=why)
    named = _named(case)
    state = _state(case, undamaged)
    broken = tuple(_broken(case, named, state))
    unchecked = tuple(_unchecked(case, state, {one.promise for one in broken}))
    if _missed(case, named, state):
        broken, unchecked = (), ("the fault did not touch this job: it trained on to its end",)
    remarks = [one.remark for _, one in state.promises() if one.remark]
    if broken and state.loaded and not state.loaded.seen:
        remarks.append(state.loaded.remark)
    unnamed = named.of_loading or not named.named
    silent = unnamed and _deals_with_it_in_silence(case)
    return msgspec.structs.replace(
        row,
        status="broken" if broken else "unproven" if unchecked else "kept",
        why="" if broken else "; ".join(unchecked),
        noticed=named.noticed,
        named=named.named,
        named_right=None if silent and not _loaded(state) else named.right,
        recovered=recovery.recovered_after(case),
        repeated=recovery.repeated(case),
        data=state.data.verdict,
        loss=state.loss.verdict,
        weights=state.weights.verdict,
        broken=broken,
        unchecked=unchecked,
        remarks=tuple(remarks),
        repeats_itself=state.repeats,
        timeline=timeline(case),
        trained=trained(case),
    )


def _never_came(row: DrillRow, rehearsal: Rehearsal, observed: Observed) -> DrillRow:
    """Then nothing may have gone wrong either."""
    broken = []
    if observed.said and rehearsal.job.runner == "holdfast":
        seen = f"a false alarm, no fault had come: {spoken(observed.said[0])}"
        broken.append(BrokenPromise(promise="name", seen=seen))
    if any(code != 0 for code in observed.exit_codes):
        code = next(code for code in observed.exit_codes if code != 0)
        how = "did not end" if code is None else f"exited with code {code}"
        seen = f"the job {how}, and no fault had come"
        broken.append(BrokenPromise(promise="recover", seen=seen))
    why = f"the fault never came ({rehearsal.when}, rank {rehearsal.rank}): the job ended before it"
    status: Literal["broken", "skipped"] = "broken" if broken else "skipped"
    return msgspec.structs.replace(row, status=status, why=why, broken=tuple(broken))


def _named(case: Case) -> Naming:
    zero = any(one.resumed.step in (0, None) for one in case.after)
    also_true = frozenset({"restart-from-zero"} if zero else ())
    return naming(
        case.observed.said,
        case.injection,
        case.rehearsal.job,
        case.fault_at,
        waits_since=case.waits_since,
        fails_since=math.inf
        if case.trained_after or not case.after
        else case.after[0].attempt.began,
        also_true=also_true,
    )


def _state(case: Case, undamaged: Sequence[Trace]) -> _State:
    lost = next((one for one in case.attempts if one.trace is None and one.attempt.taken), None)
    if case.reference.steps == 0:
        unknown = Compared("unknown", seen="no optimizer step was seen in the undisturbed job")
        return _State(unknown, unknown, unknown)
    if lost is not None:
        unknown = Compared("unknown", seen=f"where it resumed is not known: {lost.resumed.why}")
        return _State(unknown, unknown, unknown)
    seen = case.seen()
    repeats = repeats_its_bits(case.reference, seen)
    data = compare_data(case.reference, seen, repeats=repeats)
    if any(one.resumed.by == "data" for one in case.attempts):
        data = Compared("unknown", seen="at which step it resumed is only known by its data")
    loss, weights = _compared(case, seen, repeats)
    loaded = damage.loaded_damage(case, undamaged, repeats=repeats)
    return _State(data, loss, weights, repeats, loaded)


def _compared(
    case: Case,
    seen: list[SeenStep],
    repeats: bool | None,  # noqa: FBT001
) -> tuple[Compared, Compared]:
    """Loss and weights. From the first attempt with another number of ranks on, nothing is
    compared bit for bit."""
    first = min((one.attempt for one in seen if one.world != case.reference.ranks), default=None)
    strict = [one for one in seen if first is None or one.attempt < first]
    loss = compare_loss(case.reference, strict, repeats=repeats)
    weights = compare_weights(case.reference, strict, repeats=repeats)
    if first is not None:
        others = [one for one in seen if one.attempt >= first]
        loose = other_ranks.compare_loss(case.reference, others)
        loss = loss if loss.verdict == "differs" else loose
        if weights.verdict != "differs":
            weights = other_ranks.compare_weights(case.reference, others, loose)
    return loss, weights


def _missed(case: Case, named: Naming, state: _State) -> bool:
    trained_on = not case.after and case.observed.exit_codes == (0,) and not case.observed.left
    same = all(found.verdict in ("identical", "same") for _, found in state.promises())
    return case.injection.may_miss and trained_on and same and named.noticed is None


# --- what was broken -----------------------------------------------------------------------------


def _broken(case: Case, named: Naming, state: _State) -> Iterator[BrokenPromise]:
    if loaded := _loaded(state):
        seen = f"the damaged checkpoint of step {loaded.step} was loaded as if it were whole"
        yield BrokenPromise(
            promise="load",
            seen=f"{seen}: {loaded.seen}",
            fix=case.injection.fails_without or recovery.KEEP_TWO,
            slug="checkpoint-corrupt",
        )
    if case.rehearsal.job.runner == "holdfast":
        yield from _misnamed(case, named)
    if seen := recovery.recover_broken(case):
        yield _not_recovered(case, seen)
    if lost := recovery.resumed_too_early(case):
        yield lost
    yield from _torn(case)
    yield from _other_training(case, state)
    if case.observed.left:
        left = "; ".join(case.observed.left[:3])
        more = len(case.observed.left) - 3
        seen = f"left behind: {left}" + (f" and {more} more" if more > 0 else "")
        yield BrokenPromise(promise="clean", seen=seen)


def _misnamed(case: Case, named: Naming) -> Iterator[BrokenPromise]:
    bound = notice_bound(case.injection, case.rehearsal)
    if named.noticed is None or named.of_loading:
        if not _deals_with_it_in_silence(case):
            yield BrokenPromise(promise="notice", seen="nothing was said about the fault")
    elif bound is not None and named.noticed > bound:
        seen = f"noticed after {named.noticed:.1f} s, promised within {bound:.0f} s"
        yield BrokenPromise(promise="notice", seen=seen)
    if named.early:
        before = case.fault_at - named.early.t
        seen = f"a false alarm {before:.1f} s before the fault: {spoken(named.early)}"
        yield BrokenPromise(promise="name", seen=seen)
    elif named.wrong:
        seen = f"said {spoken(named.wrong)}; it was {_truth(case)}"
        yield BrokenPromise(promise="name", seen=seen)
    elif named.noticed is not None and not named.right and not named.of_loading:
        yield BrokenPromise(promise="name", seen=f"it was never named {_truth(case)}")


def _loaded(state: _State) -> LoadedDamage | None:
    return state.loaded if state.loaded and state.loaded.seen else None


def _deals_with_it_in_silence(case: Case) -> bool:
    """No save was reported to the runner: the script has its own."""
    return case.injection.told_by_checkpoint and not case.observed.saved


def _truth(case: Case) -> str:
    culprits, hosts = case.injection.culprits, case.injection.hosts
    whom = text.ranks(culprits) if culprits else " or ".join(hosts)
    names = " or ".join(case.injection.slugs)
    return f"{names}: {whom}" if whom else names


def _not_recovered(case: Case, seen: str) -> BrokenPromise:
    fix, slug = case.injection.fails_without, ""
    if case.after and not case.trained_after and case.injection.cannot_load:
        seen, slug = f"no attempt got past loading: {seen}", case.injection.cannot_load
    return BrokenPromise(promise="recover", seen=seen, fix=fix, slug=slug)


def _torn(case: Case) -> Iterator[BrokenPromise]:
    for one in case.trained_after:
        if one.resumed.torn:
            yield BrokenPromise(
                promise="weights",
                seen=one.resumed.why,
                fix="let all ranks agree on the checkpoint they load; holdfast.Checkpoint does",
                slug="ranks-differ",
            )
            return


def _other_training(case: Case, state: _State) -> Iterator[BrokenPromise]:
    resumed = case.trained_after[0].trace if case.trained_after else None
    after = f"after the resume at step {resumed.base}, " if resumed else ""
    loaded = _loaded(state)
    cause = AS_A_RESULT if loaded else script_fault(case, state.data, state.loss, state.weights)
    if state.data.verdict == "differs":
        fix, slug = (DATA.fix, DATA.slug) if resumed else ("", "")
        yield BrokenPromise(promise="data", seen=after + state.data.seen, fix=fix, slug=slug)
    fix = cause.fix  # said once
    for promise, found in state.promises():
        if found.verdict == "differs" and promise != "data":
            yield BrokenPromise(promise=promise, seen=after + found.seen, fix=fix, slug=cause.slug)
            fix = ""


# --- what could not be checked -------------------------------------------------------------------


def _unchecked(case: Case, state: _State, broken: set[str]) -> Iterator[str]:
    if "recover" in broken:
        return  # nothing could be compared to its end, and that is said already
    for problem in case.reference.problems:
        yield f"reference: {problem}"
    if why := recovery.early_unknown(case):
        yield f"repeat: {why}"
    if state.loaded and not state.loaded.seen and state.weights.verdict != "identical":
        yield f"load: {state.loaded.remark}"
    for promise, found in state.promises():
        if found.verdict == "unknown" and promise not in broken:
            yield f"{promise}: {found.seen}"
