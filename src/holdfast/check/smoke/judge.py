"""Which stage failed, which rank is behind it, and why. Pure: records in, `Smoke` out."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from holdfast import catalogue, text
from holdfast.analysis.machine import (
    Reach,
    Smoke,
    SmokePair,
    SmokeRank,
    SmokeRung,
    SmokeStage,
    Unread,
)
from holdfast.analysis.machine.nccl_diagnostics import DiagnosticLine, report_or_why
from holdfast.analysis.machine.nccl_links import read_links
from holdfast.analysis.machine.smoke_failures import ErrorMeaning, SmokeFailure
from holdfast.check.smoke.errno_words import translate
from holdfast.check.smoke.rank_progress import RankProgress, culprits, standing
from holdfast.check.smoke.stages import SHARED, STAGES, Record, deadline

CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)


def judge(
    world: int,
    records: Sequence[Record],
    *,
    loopback: tuple[Reach, ...] | Unread,
    seconds: float,
) -> Smoke:
    """All of it. A stage after one that failed is 'skipped': nothing was learnt about it."""
    roll = [standing(rank, records) for rank in range(world)]
    stages = [judge_loopback(loopback)]
    for name in STAGES:
        failed = next((stage.name for stage in stages if stage.status == "failed"), "")
        if failed:
            stages.append(_stage(name, "skipped", f"not reached: stage '{failed}' failed"))
        else:
            stages.append(judge_stage(name, roll, records, patience=seconds))
    said = [record.text for record in records if record.kind == "nccl"]
    return Smoke(
        world=world,
        ranks=tuple(_rank(who) for who in roll),
        stages=tuple(stages),
        ladder=ladder(world, records),
        links=read_links(said),
        pairs=pairs(records),
        diagnostics=_diagnostics(roll, stages[-1], said),
        shared_gpus=any(who.device.endswith(SHARED) for who in roll),
    )


def _diagnostics(
    roll: Sequence[RankProgress], nccl: SmokeStage, said: Sequence[str]
) -> tuple[DiagnosticLine, ...] | Unread:
    if nccl.status == "skipped":
        return Unread(why=f"NCCL did not run: {nccl.reason}")
    return report_or_why(said, {who.nccl for who in roll if who.nccl})


def judge_loopback(loopback: tuple[Reach, ...] | Unread) -> SmokeStage:
    """127.0.0.1 must carry TCP; ::1 alone missing stops no job on one machine."""
    if isinstance(loopback, Unread):
        return _stage("loopback", "skipped", f"could not look: {loopback.why}")
    seconds = sum(reach.seconds for reach in loopback)
    if any(not reach.error for reach in loopback if reach.address == "127.0.0.1"):
        return _stage("loopback", "ok", seconds=seconds)
    heard = "; ".join(f"{reach.address}: {_meaning(reach.error)}" for reach in loopback)
    return _stage(
        "loopback",
        "failed",
        f"this machine cannot connect to itself: {heard or 'no address was tried'}",
        _slug(SmokeFailure.LOOPBACK),
        seconds,
    )


def judge_stage(
    name: str, roll: Sequence[RankProgress], records: Sequence[Record], *, patience: float
) -> SmokeStage:
    here = [record for record in records if record.stage == name]
    seconds = next((record.seconds for record in here if record.kind == "closed"), 0.0)
    behind = [who for who in roll if who.reached <= STAGES.index(name)]
    left_out = {record.rank: record.text for record in here if record.kind == "skipped"}
    if set(left_out) == {who.rank for who in roll}:
        return _stage(name, "skipped", left_out[0], seconds=seconds)
    if left_out and not any(who.failed_by_itself for who in behind):
        reason = f"{text.ranks(left_out)} could not take part: {next(iter(left_out.values()))}"
        return _stage(name, "failed", reason, _slug(SmokeFailure.NUMBERING), seconds)
    wrong = [record for record in here if record.kind in ("rung", "pair") and not record.correct]
    if wrong:
        return _stage(name, "failed", _wrong_sum(wrong), "", seconds)
    if behind:
        why = _why(name, roll, patience)
        return _stage(name, "failed", why.words, why.slug, seconds)
    if name == STAGES[0] and (contradiction := _contradiction(roll)):
        return _stage(name, "failed", contradiction, _slug(SmokeFailure.NUMBERING), seconds)
    return _stage(name, "ok", seconds=seconds)


def _stage(
    name: str, status: str, reason: str = "", cause: str = "", seconds: float = 0.0
) -> SmokeStage:
    fault = catalogue.by_slug(cause) if cause else None
    return SmokeStage(
        name=name,
        status=status,
        seconds=seconds,
        reason=reason,
        cause=cause,
        fix=fault.smoke_fix if fault else "",
        cause_speaks=fault is not None and "smoke" in fault.needs,
    )


def _slug(failure: SmokeFailure) -> str:
    return catalogue.fault_of(failure).slug


def _why(name: str, roll: Sequence[RankProgress], seconds: float) -> ErrorMeaning:
    """The reason and the slug of a stage that not every rank finished."""
    guilty = culprits(name, roll)
    first = guilty[0]
    who = _name(guilty)
    others = [one.rank for one in roll if one not in guilty]
    waited = (
        f"; {text.ranks(others)} {text.plural(others, 'is', 'are')} not to blame" if others else ""
    )
    if first.error:
        return _error_of(who, first)
    if first.exit_code is not None:
        return ErrorMeaning(
            f"{who} {_how_it_exited(first)}{waited}", _slug_of_exit(first.exit_code)
        )
    if first.stopped:
        how = "does not run: it was stopped (state T)"
        return ErrorMeaning(f"{who} {how}{waited}", _slug(SmokeFailure.MISSING))
    if not first.pid:
        return ErrorMeaning(f"{who} never started{waited}", _slug(SmokeFailure.MISSING))
    stuck = " (state D: in an uninterruptible system call)" if first.state == "D" else ""
    return _was_silent(name, f"{who}{stuck}", waited, seconds)


def _was_silent(name: str, who: str, waited: str, seconds: float) -> ErrorMeaning:
    patience = deadline(name, seconds)
    # When no rank gets through, no rank in particular is missing.
    slug = _slug(SmokeFailure.MISSING) if waited else ""
    if name == STAGES[0]:
        return ErrorMeaning(f"{who} did not import torch within {patience:g} s{waited}", slug)
    guess = "" if waited else "; often a firewall drops the connections between ranks"
    return ErrorMeaning(f"{who} got no further in '{name}' for {patience:g} s{waited}{guess}", slug)


def _error_of(who: str, first: RankProgress) -> ErrorMeaning:
    cause = translate(first.error, nccl=first.nccl)
    quote = first.error.splitlines()[0]
    if cause is None:
        return ErrorMeaning(f"{who} said: {quote}", "")
    return ErrorMeaning(f"{who}: {cause.words}; it said: {quote}", cause.slug)


def _how_it_exited(who: RankProgress) -> str:
    code = who.exit_code or 0
    if code < 0:
        how = f"was killed by {_signal_name(-code)}"
    else:
        how = f"ended with exit code {code} before it was done"
    return f"{how}; its last line: {who.printed.splitlines()[-1]}" if who.printed else how


def _slug_of_exit(code: int) -> str:
    return _slug(SmokeFailure.CRASH if -code in CRASHES else SmokeFailure.MISSING)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _contradiction(roll: Sequence[RankProgress]) -> str:
    """Every rank must mean the same master, and none may sit on another's GPU."""
    masters = sorted({who.master for who in roll})
    if len(masters) > 1:
        return f"the ranks do not agree on the master: {', '.join(masters)}"
    gpus = [who.device for who in roll if who.device.startswith("cuda:")]
    twice = sorted({gpu for gpu in gpus if gpus.count(gpu) > 1 and not gpu.endswith(SHARED)})
    if twice:
        sharers = [who.rank for who in roll if who.device in twice]
        return f"{text.ranks(sharers)} share {', '.join(twice)}"
    return ""


def _wrong_sum(wrong: Sequence[Record]) -> str:
    first = wrong[0]
    if first.kind == "pair":
        what = f"what rank {first.peer} sent arrived wrong on rank {first.rank}"
    else:
        same = [r.rank for r in wrong if (r.kind, r.size) == (first.kind, first.size)]
        what = f"all_reduce of {text.size(first.size)} gave a wrong sum on {text.ranks(same)}"
    return f"{what}: {first.text}; a training job would continue with wrong numbers"


def ladder(world: int, records: Sequence[Record]) -> tuple[SmokeRung, ...]:
    """One rung per stage and size; it takes as long as it takes the slowest rank."""
    rungs: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record.kind == "rung":
            rungs.setdefault((record.stage, record.size), []).append(record)
    return tuple(_rung(world, *key, said) for key, said in rungs.items())


def pairs(records: Sequence[Record]) -> tuple[SmokePair, ...]:
    """Each pair once; it takes as long as it takes the slower of the two."""
    took: dict[tuple[int, int], Record] = {}
    for record in records:
        if record.kind == "pair":
            key = (min(record.rank, record.peer), max(record.rank, record.peer))
            took[key] = max(took.get(key, record), record, key=lambda one: one.seconds)
    return tuple(
        SmokePair(first=first, second=second, bandwidth=record.size / record.seconds)
        for (first, second), record in took.items()
        if record.seconds > 0
    )


def _rung(world: int, stage: str, size: int, said: Sequence[Record]) -> SmokeRung:
    seconds = max(record.seconds for record in said)
    moved = 2 * (world - 1) / world * size
    return SmokeRung(
        stage=stage,
        size=size,
        seconds=seconds,
        correct=all(record.correct for record in said),
        bandwidth=moved / seconds if seconds > 0 else 0.0,
    )


def _rank(who: RankProgress) -> SmokeRank:
    return SmokeRank(
        rank=who.rank,
        pid=who.pid,
        device=who.device,
        master=who.master,
        reached=who.finished,
        error=who.error,
        exit_code=who.exit_code,
        gpu=who.gpu,
    )


def _name(guilty: Sequence[RankProgress]) -> str:
    if len(guilty) == 1 and guilty[0].pid:
        return f"rank {guilty[0].rank} (pid {guilty[0].pid})"
    return text.ranks(who.rank for who in guilty)


def _meaning(error: str) -> str:
    cause = translate(error)
    return cause.words if cause else error or "fine"
