"""A save was cut short: part of a checkpoint is left behind.

What you see   Files like `step_1200.pt.tmp` that nobody writes any more, or a folder of `.distcp`
               shards without `.metadata`. Loading such a folder fails: `CheckpointException`, and
               in it `FileNotFoundError: [Errno 2] No such file or directory: '….metadata'`.
Why            The job ended while saving: killed, out of time, out of space. A sharded save writes
               its `.metadata` last, when every rank is done, so a folder without it was never
               finished. A temporary file that was never renamed is the same, and is what a careful
               save leaves behind: the checkpoint before it is untouched.
How to be sure `lsof FILE` shows whether somebody still writes; a save under way looks the same, so
               holdfast tells you its age.
Fix            If no job is saving there now, remove the rest and resume from the checkpoint before
               it. Scripts that pick 'the newest folder' must skip folders without `.metadata`.
Sources        torch 2.13.0: torch/distributed/checkpoint/filesystem.py (metadata is written last)
               https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
               https://man7.org/linux/man-pages/man2/rename.2.html
"""

from __future__ import annotations

from holdfast import wording
from holdfast.facts import CheckpointItem, MachineFacts, known
from holdfast.model import Evidence, Fault, Finding, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD803", slug="checkpoint-incomplete")

SETTLED = 60.0
"""seconds: what was written more recently may be a save under way"""


@FAULT.foresee
def save_was_cut_short(facts: MachineFacts) -> Finding | list[Finding]:
    if not facts.plan.checkpoint_folders:
        return FAULT.does_not_apply("no checkpoint folder was named: add --ckpt DIR")
    items = known(facts.checkpoints)
    folders = [item for item in items if item.problem.startswith("incomplete")]
    leftovers = [item for item in items if item.kind == "temporary"]
    findings = [_folder(item, items) for item in folders] + [_temporary(t) for t in leftovers]
    return findings or FAULT.ok("no unfinished save in " + ", ".join(facts.plan.checkpoint_folders))


def _evidence(item: CheckpointItem) -> list[Evidence]:
    what = f"{item.path}: {item.problem}" if item.problem else item.path
    text = f"{what} ({wording.size(item.size)}, {wording.span(item.age)} old)"
    return [Evidence(quote=text, source=item.path)]


def _folder(item: CheckpointItem, items: tuple[CheckpointItem, ...]) -> Finding:
    whole = [other for other in items if not other.problem and other.kind != "temporary"]
    before = min(whole, key=lambda other: other.age, default=None)
    resume = f"resume from {before.path}" if before else "no whole checkpoint is beside it"
    if any(other.age < item.age for other in whole):
        return FAULT.note(
            f"an older sharded save was never finished: {item.path}",
            reason=f"{item.problem}; newer checkpoints are there",
            evidence=_evidence(item),
            fix=f"`rm -r {item.path}` when nobody needs it",
        )
    saving = item.age < SETTLED
    doubt = "; it may be a save under way, written a moment ago" if saving else ""
    speak = FAULT.warning if saving else FAULT.error
    return speak(
        f"the newest sharded checkpoint was never finished: {item.path}",
        reason=f"{item.problem}, so it cannot be loaded{doubt}",
        evidence=_evidence(item),
        fix=f"{resume}; remove the rest with `rm -r {item.path}`",
    )


def _temporary(item: CheckpointItem) -> Finding:
    return FAULT.note(
        f"a save left a temporary file behind: {item.path}",
        reason="it was never renamed to a checkpoint; the one before it is untouched, and nothing "
        "will choose this one unless a script picks files by age",
        evidence=_evidence(item),
        fix=f"`rm -r {item.path}` if no job is saving there now",
    )


# --- while a job runs --------------------------------------------------------------------------


@FAULT.notice
def a_part_was_missing(scene: Scene) -> Verdict | None:
    """Nothing to act on: the resume that found it has gone on to the one before."""
    torn = [
        aside
        for aside in scene.kept.set_aside
        if aside.attempt == scene.attempt and aside.part_missing
    ]
    if not torn:
        return None
    last = torn[-1]
    others = f", and {len(torn) - 1} more" if len(torn) > 1 else ""
    return FAULT.verdict(
        f"a part of a checkpoint is missing, so it was not used: {last.path}: {last.why}{others}",
        ranks=(),
        certain=False,
        fix="a finished checkpoint has all its files: see who removes or copies files there",
        evidence=[Evidence(quote=aside.why, source=aside.path) for aside in torn],
    )
