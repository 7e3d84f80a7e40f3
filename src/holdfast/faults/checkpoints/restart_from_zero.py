"""The job was restarted and began again from the start.

What you see   After a restart everything looks healthy, but the loss is back where it was on the
               first day. Launchers restart processes and restore nothing: what the script does not
               load itself is lost, and with it all work since the start.
Why            The script has no code to load a checkpoint, looks in another folder than it saves
               to, found only damaged checkpoints, or nothing had been saved before the fault.
How to be sure With `holdfast.Checkpoint` it is known exactly: `resume()` reports the step it found.
               For any other script holdfast looks at rank 0 just before its first step: do a few
               hundred values of its parameters equal those the first attempt started with, and
               had they changed in between; has its optimizer counted steps, was anything loaded?
               Where that is inconclusive, holdfast says so.
Fix            Load the newest checkpoint at every start, not only when a flag says so. Three lines
               with holdfast: `ckpt = holdfast.Checkpoint("ckpts", state, every="5m")`, then
               `step = ckpt.resume()` before the loop, and `ckpt.step()` after every step.
Known limits   Without `holdfast.Checkpoint`, a script that loads pretrained weights at every start
               cannot be told apart from one that resumed. `holdfast lint` sees only loads in the
               script itself, not in modules it imports.
Sources        https://docs.pytorch.org/docs/stable/elastic/train_script.html (on failure the script
               is started from the top; it has to load its own checkpoint)
               torch 2.13.0: torch/optim/optimizer.py, register_optimizer_step_pre_hook
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.analysis.drill.host_acts import HideCheckpoints
from holdfast.analysis.drill.injection import CannotInject, Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import resume_refused
from holdfast.analysis.logs.patterns import resume
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene import attempt_start
from holdfast.analysis.scene.checkpoints import CheckpointAccount, Resumed
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.source.checkpoints import own_calls, resuming
from holdfast.analysis.source.checkpoints.restarts import RestartSign, aware_of_restarts, restarted
from holdfast.analysis.source.checkpoints.training_state import first_backward
from holdfast.analysis.source.program import Call, Program, cited
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD801",
    slug="restart-from-zero",
    traits=RunTraits(priority=600),
    related=("checkpoint-corrupt", "checkpoint-incomplete", "data-position-lost", "restart-loop"),
)

FIX = (
    "load the newest checkpoint at every start, e.g. `step = holdfast.Checkpoint(folder, state, "
    'every="5m").resume()`'
)


@FAULT.run
def attempt_started_from_scratch(scene: Scene) -> Verdict | None:
    kept = scene.checkpoints
    if not scene.attempt or kept.reached <= kept.base:  # nothing was lost
        return None
    resumed = [r for r in kept.resumed if r.attempt == scene.attempt]
    if resumed:
        return _exactly(resumed[-1], kept) if resumed[-1].step == 0 else None
    began = attempt_start.of_attempt(kept, scene.attempt)
    if began is None or began.what == "resumed":
        return None
    if kept.saves:
        saved = kept.saves[-1]
        why = f"it took its first step without `resume()`, although {saved.path} exists"
        return _say(kept, why, Evidence(quote=f"saved at step {saved.step}", source=saved.path))
    if began.what == "unknown":
        return None
    sure = "" if began.sure else " (likely, not certain)"
    wrote = kept.script_saved
    more = [Evidence(quote=f"the script {wrote.words}", source=wrote.path)] if wrote else []
    return _say(kept, began.why + sure, Evidence(quote=began.why, rank=0), *more)


@FAULT.run
def resume_refused_to_begin_again(scene: Scene) -> Verdict | None:
    """Not fatal: the next attempt may find its disk again."""
    found = resume_refused.refused(scene, FAULT.slug)
    if found is None:
        return None
    return FAULT.verdict(
        found.sentence,
        ranks=found.ranks,
        victims=found.victims,
        certain=True,
        fix=found.hint,
        evidence=found.evidence,
    )


def _exactly(resumed: Resumed, kept: CheckpointAccount) -> Verdict:
    if kept.saves:
        saved = kept.saves[-1]
        why = f"`resume()` found no usable checkpoint, although step {saved.step} had been saved"
        seen = Evidence(quote=f"saved at step {saved.step}", source=saved.path)
        aside = [a for a in kept.set_aside if a.attempt == resumed.attempt]
        more = [Evidence(quote=a.why, source=a.path) for a in aside]
        fix = f"check that {saved.path} still exists and that every start uses its folder"
        return _say(kept, why, seen, *more, fix=fix)
    why = "nothing had been saved before the fault"
    fix = 'save earlier: `Checkpoint(…, every="auto")`, or a smaller `every=`'
    return _say(kept, why, Evidence(quote="resume() returned 0", rank=0), fix=fix)


def _say(kept: CheckpointAccount, why: str, *seen: Evidence, fix: str = FIX) -> Verdict:
    steps = kept.reached - kept.base
    return FAULT.verdict(
        # Not 0 when the first attempt itself resumed an earlier run.
        f"the job restarted from step {kept.base}: {why}; "
        f"{steps} step{'s are' if steps > 1 else ' is'} repeated",
        ranks=(),
        certain=False,
        fix=fix,
        evidence=seen,
    )


# --- in what is left of a job -------------------------------------------------------------------

FAULT.log_patterns.extend(resume.ALL)


@FAULT.explain
def restarted_without_loading_its_checkpoint(wreckage: Wreckage) -> Diagnosis | None:
    """Only where one log shows all of it: a save, then a new start, and no load after that."""
    for saved in wreckage.seen(resume.SAVED)[-1:]:
        empty = _after(wreckage.seen(resume.NOTHING_FOUND), saved)
        restarts = _after(wreckage.seen(resume.RESTARTED), saved)
        begun = _after(wreckage.seen(resume.STEP_ZERO), restarts[0]) if restarts else ()
        start = (*empty, *begun)[:1]
        if start and not _after(wreckage.seen(resume.LOADING), saved):
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
    looked = start.pattern == resume.NOTHING_FOUND.name
    how = (
        "it looked for a checkpoint and found none"
        if looked
        else "nothing was loaded before its first step"
    )
    return FAULT.diagnosis(
        f"a checkpoint had been saved{step}, but the next attempt began from scratch: {how}",
        confidence=0.7,
        seen=(saved, *restarts[:1], start),
        culprit=Culprit(what=start.fields.get("path", "")),
        fix="load the newest checkpoint from the folder that the job saves to, at every start"
        if looked
        else FIX,
        unknown=("why the first attempt ended",),
    )


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint_python
def restarted_script_loads_no_checkpoint(program: Program, source: Source) -> Iterator[Finding]:
    elastic = restarted(source)
    if not source.complete:
        return
    work = first_backward(program) or resuming.trainer_without_resume(program)
    if work is None or not (elastic or aware_of_restarts(program)):
        return
    if not resuming.may_load(program):
        yield _from_the_start(source, work, elastic)
    elif elastic and (switch := resuming.only_if_asked(program, source.started_by)):
        yield _only_if_asked(source, switch, elastic)


def _launched(elastic: RestartSign) -> Evidence:
    return Evidence(quote=elastic.said, source=elastic.place.file, line=elastic.place.line)


def _from_the_start(source: Source, work: Call, elastic: RestartSign | None) -> Finding:
    assert source.program is not None
    how = f"`{elastic.said}` restarts it" if elastic else "it counts its restarts"
    return FAULT.warning(
        f"this training script loads no checkpoint, and {how}: every restart begins at step 0",
        reason="launchers restart processes and restore nothing; what the script does not load "
        "itself is lost at each restart. This file contains no call that loads a checkpoint",
        fix=FIX,
        evidence=[_launched(elastic)] if elastic else (),
        at=source.program.place(work.node),
    )


def _only_if_asked(source: Source, switch: resuming.ResumeOption, elastic: RestartSign) -> Finding:
    assert source.program is not None
    return FAULT.warning(
        f"a checkpoint is loaded only with {switch.option}, which the launch command does not "
        "pass: a restart begins at step 0",
        reason=f"`{elastic.said}` restarts the script with the same arguments",
        fix="load the newest checkpoint whenever one exists: `if os.path.exists(path):`, or "
        "`holdfast.Checkpoint(folder, state).resume()`",
        evidence=[_launched(elastic), cited(switch.load.node, source.file)],
        at=source.program.place(switch.load.node),
    )


@FAULT.lint_python
def own_checkpoint_is_never_used(program: Program, source: Source) -> Iterator[Finding]:
    if not source.complete:
        return
    for one in own_calls.never_called(program, "resume"):
        yield FAULT.warning(
            f"{one.name}.resume() is never called: every start begins at step 0",
            reason="what was saved is loaded by resume() only",
            fix=f"call `{one.name}.resume()` once before the training loop",
            at=program.place(one.made.node),
        )
    for one in own_calls.never_called(program, "step", "save"):
        yield FAULT.warning(
            f"{one.name}.step() is never called: nothing is saved",
            reason="steps are counted by step(), which saves when a save is due",
            fix=f"call `{one.name}.step()` on every rank after every optimizer step",
            at=program.place(one.made.node),
        )


# --- drill ---------------------------------------------------------------------------------------

UNTIL_THE_RESUME = 120.0
"""seconds: it is known when the ranks have started again"""


@FAULT.drill()
def checkpoints_are_out_of_reach(rehearsal: Rehearsal) -> Injection | CannotInject:
    """It begins again or refuses to: either is said, and it trains on once they are back."""
    before = [step for step in rehearsal.job.saved_after if step <= rehearsal.at_step]
    if not before:
        return CannotInject(f"the job saves nothing before step {rehearsal.at_step}")
    return Injection(
        does=f"the checkpoint folder moved away, and SIGKILL to rank {rehearsal.rank}, "
        f"{rehearsal.when}",
        act=HideCheckpoints(),
        then=Then.RECOVERS,
        culprits=(),
        any_rank=True,
        beside=("rank-killed",),
        notice_within=UNTIL_THE_RESUME,
        costs_saves=len(before),
    )
