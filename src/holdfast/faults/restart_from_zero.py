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

from typing import NamedTuple

from holdfast.kept import Account, FirstStep, Resumed
from holdfast.model import Evidence, Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD801", slug="restart-from-zero")

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


@FAULT.notice
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
