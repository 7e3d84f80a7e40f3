"""The job was restarted, and began again from the start.

What you see   After a restart everything looks well, and the loss is back where it was on the first
               day. Launchers restart processes and restore nothing: what the script does not load
               itself is gone, and with it all work since the start.
Why            The script has no code to load a checkpoint, looks in another folder than it saves
               to, found only damaged ones, or nothing had been saved when the fault came.
How to be sure With `holdfast.Checkpoint` it is known exactly: `resume()` tells the step it found.
               Any other script is looked at just before its first step: are a few hundred values
               of its parameters the very ones the first attempt began with, has its optimizer
               counted steps, was anything loaded? Where that cannot tell, holdfast says so.
Fix            Load the newest checkpoint at every start, not only when a flag says so; three lines
               with holdfast: `ckpt = holdfast.Checkpoint("ckpts", state, every="5m")`, then
               `step = ckpt.resume()` before the loop, and `ckpt.step()` after every step.
Sources        https://docs.pytorch.org/docs/stable/elastic/train_script.html (on failure the script
               is started from the top; it has to load its own checkpoint)
               torch 2.13.0: torch/optim/optimizer.py, register_optimizer_step_pre_hook
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene.checkpoints import Account, FirstStep, Resumed
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.source.checkpoints import resuming
from holdfast.analysis.source.checkpoints.restarts import Elastic, aware_of_restarts, restarted
from holdfast.analysis.source.checkpoints.training_state import trains
from holdfast.analysis.source.program import Call, cited
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(code="HOLD801", slug="restart-from-zero", traits=RunTraits(priority=600))

FIX = (
    "load the newest checkpoint at every start: `step = holdfast.Checkpoint(folder, state, "
    'every="5m").resume()` does it'
)


class Guess(NamedTuple):
    what: str
    """'zero', 'resumed' or 'unknown'"""
    why: str
    sure: bool = True


def infer(first: FirstStep | None, now: FirstStep) -> Guess:
    """How an attempt began, from what was seen before its first step and before the first
    attempt's."""
    if now.optimizer_step:
        if first is None or now.optimizer_step > (first.optimizer_step or 0):
            return Guess("resumed", f"its optimizer had counted {now.optimizer_step} steps")
    elif now.optimizer_step is None and first is not None and first.optimizer_step == 0:
        return Guess("resumed", "its optimizer had state before the first step")
    if first is None:
        return Guess("unknown", "the first attempt never came to a step to compare with")
    if now.digest and now.digest == first.digest:
        return Guess("zero", "its parameters are the very ones the first attempt began with")
    return _unlike(first, now)


def _unlike(first: FirstStep, now: FirstStep) -> Guess:
    """Other parameters than at first: restored ones, or drawn anew without a seed."""
    if not now.digest or not first.digest:
        return Guess("unknown", "its parameters could not be read")
    if now.loaded and not first.loaded:
        return Guess("resumed", "it loaded something, as the first attempt did not", sure=False)
    if now.loaded or now.other_ways:
        return Guess("unknown", "it may have loaded a checkpoint, or pretrained weights only")
    return Guess("zero", "nothing was loaded, and its optimizer has no state yet", sure=False)


def guess(kept: Account, attempt: int) -> Guess | None:
    """The same for one attempt of a run; None when nothing was seen of its beginning."""
    now = [record for record in kept.first_steps if record.attempt == attempt]
    before = [record for record in kept.first_steps if record.attempt < attempt]
    return infer(before[0] if before else None, now[0]) if now else None


@FAULT.run
def it_began_again(scene: Scene) -> Verdict | None:
    kept = scene.kept
    if not scene.attempt or kept.reached <= kept.base:  # nothing was lost
        return None
    resumed = [r for r in kept.resumed if r.attempt == scene.attempt]
    if resumed:
        return _exactly(resumed[-1], kept) if resumed[-1].step == 0 else None
    began = guess(kept, scene.attempt)
    if began is None or began.what == "resumed":
        return None
    if kept.saves:
        saved = kept.saves[-1]
        why = f"it took its first step without `resume()`, and {saved.path} lies there unused"
        return _say(kept, why, Evidence(quote=f"saved at step {saved.step}", source=saved.path))
    if began.what == "unknown":
        return None
    sure = "" if began.sure else " (likely, not certain)"
    return _say(kept, began.why + sure, Evidence(quote=began.why, rank=0))


def _exactly(resumed: Resumed, kept: Account) -> Verdict:
    if kept.saves:
        saved = kept.saves[-1]
        why = f"`resume()` found nothing it could use, although step {saved.step} had been saved"
        seen = Evidence(quote=f"saved at step {saved.step}", source=saved.path)
        aside = [a for a in kept.set_aside if a.attempt == resumed.attempt]
        more = [Evidence(quote=a.why, source=a.path) for a in aside]
        fix = f"see whether {saved.path} is still there, and that every start names its folder"
        return _say(kept, why, seen, *more, fix=fix)
    why = "nothing had been saved before the fault"
    fix = 'save earlier: Checkpoint(…, every="auto"), or a smaller every='
    return _say(kept, why, Evidence(quote="resume() returned 0", rank=0), fix=fix)


def _say(kept: Account, why: str, *seen: Evidence, fix: str = FIX) -> Verdict:
    steps = kept.reached - kept.base
    return FAULT.verdict(
        # Not 0 when the first attempt itself went on from an earlier run.
        f"the job restarted from step {kept.base}: {why}; "
        f"{steps} step{'s are' if steps > 1 else ' is'} done again",
        ranks=(),
        certain=False,
        fix=fix,
        evidence=seen,
    )


# --- in what is left of a job -------------------------------------------------------------------

RESTARTED = FAULT.log_pattern(
    "restarted",
    r"attempts left; will restart worker group|Restarting worker group",
    anchors=("will restart worker group", "Restarting worker group"),
    example="[default] Worker group FAILED. 2/3 attempts left; will restart worker group",
    role=Role.CONFIRMATION,
)
SAVED = FAULT.log_pattern(
    "saved",
    r"(?i:saved checkpoint|saving model checkpoint to|checkpoint saved)"
    r"(?:.*?(?:iteration|step)\D{0,8}(?P<step>\d+))?",
    anchors=("saved checkpoint", "Saved checkpoint", "Saving model checkpoint", "heckpoint saved"),
    example="  successfully saved checkpoint from iteration    1200 to /ckpts",
    role=Role.CONTEXT,
)
LOADING = FAULT.log_pattern(
    "loading",
    r"(?i:loading checkpoint (?:from|at)|loading (?:model|states?) from"
    r"|resum(?:ed|ing) (?:\w+ )?from"
    r"|restor(?:ed|ing) .*?checkpoint|successfully loaded checkpoint|loaded checkpoint)"
    r"(?:\D*?(?P<path>/[^\s'\",]+))?",
    anchors=(
        "oading checkpoint",
        "oading model from",
        "oading state",
        "esumed from",
        "esuming from",
        "esuming training from",
        "estored ",
        "estoring ",
        "oaded checkpoint",
    ),
    example=" loading checkpoint from /ckpts at iteration 1200",
    role=Role.CONTEXT,
)
NOTHING_FOUND = FAULT.log_pattern(
    "nothing-found",
    r"will not load any checkpoints and will start from random"
    r"|could not find the metadata file (?P<path>\S+)",
    anchors=("will not load any checkpoints", "could not find the metadata file"),
    example="WARNING: could not find the metadata file /ckpts/latest_checkpointed_iteration.txt",
    role=Role.CONTEXT,
)
STEP_ZERO = FAULT.log_pattern(
    "step-zero",
    r"(?i)\b(?:step|iteration)\s?[:=]?\s?0(?:[\s,:/|]|$)|\bfrom scratch\b",
    anchors=(
        "step 0 ",
        "step 0:",
        "step 0,",
        "step 0/",
        "step=0 ",
        "step=0,",
        "step: 0 ",
        "step: 0,",
        "iteration 0 ",
        "iteration 0:",
        "from scratch",
    ),
    example="step 0: loss 6.93",
    role=Role.CONTEXT,
)


@FAULT.explain
def it_had_saved_and_began_again(wreckage: Wreckage) -> Diagnosis | None:
    """Only where one log shows all of it: a save, then a new start, and no load after that."""
    for saved in wreckage.seen(SAVED)[-1:]:
        empty = _after(wreckage.seen(NOTHING_FOUND), saved)
        restarts = _after(wreckage.seen(RESTARTED), saved)
        begun = _after(wreckage.seen(STEP_ZERO), restarts[0]) if restarts else ()
        start = (*empty, *begun)[:1]
        if start and not _after(wreckage.seen(LOADING), saved):
            return _began_again(saved, start[0], restarts)
    return None


def _after(sightings: Sequence[Sighting], mark: Sighting) -> tuple[Sighting, ...]:
    return tuple(
        one
        for one in sightings
        if one.line.source == mark.line.source and one.line.number > mark.line.number
    )


def _began_again(saved: Sighting, start: Sighting, restarts: Sequence[Sighting]) -> Diagnosis:
    step = f" at step {saved.fields['step']}" if "step" in saved.fields else ""
    looked = start.signature == NOTHING_FOUND.name
    how = (
        "it looked for a checkpoint and found none where it looked"
        if looked
        else "nothing was loaded before its first step"
    )
    return FAULT.diagnosis(
        f"a checkpoint had been saved{step}, but the next start began from the beginning: {how}",
        confidence=0.7,
        seen=(saved, *restarts[:1], start),
        culprit=Culprit(what=start.fields.get("path", "")),
        fix="let every start load the newest checkpoint from the folder that the job saves to"
        if looked
        else FIX,
        unknown=("what made the first attempt end: that is another question",),
    )


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def it_never_loads(source: Source) -> Iterator[Finding]:
    program, elastic = source.program, restarted(source)
    if program is None or not source.complete:
        return
    work = trains(program) or resuming.trainer_starts_anew(program)
    if work is None or not (elastic or aware_of_restarts(program)):
        return
    if not resuming.may_load(program):
        yield _from_the_start(source, work, elastic)
    elif elastic and (switch := resuming.only_if_asked(program, source.started_by)):
        yield _only_if_asked(source, switch, elastic)


def _launched(elastic: Elastic) -> Evidence:
    return Evidence(quote=elastic.said, source=elastic.place.file, line=elastic.place.line)


def _from_the_start(source: Source, work: Call, elastic: Elastic | None) -> Finding:
    assert source.program is not None
    how = f"`{elastic.said}` starts it again" if elastic else "it counts its restarts"
    return FAULT.warning(
        f"this training loads no checkpoint, and {how}: every restart begins at step 0",
        reason="launchers restart processes and restore nothing; what the script does not load "
        "itself is lost at each restart. No call that loads was found in this file",
        fix=FIX,
        evidence=[_launched(elastic)] if elastic else (),
        at=source.program.place(work.node),
    )


def _only_if_asked(source: Source, switch: resuming.Switch, elastic: Elastic) -> Finding:
    assert source.program is not None
    return FAULT.warning(
        f"a checkpoint is loaded only with {switch.option}, which the launch does not give: a "
        "restart begins at step 0",
        reason=f"`{elastic.said}` starts the script again with the same arguments",
        fix="load the newest checkpoint whenever there is one: `if os.path.exists(path):`, or "
        "`holdfast.Checkpoint(folder, state).resume()`",
        evidence=[_launched(elastic), cited(switch.load.node, source.file)],
        at=source.program.place(switch.load.node),
    )
