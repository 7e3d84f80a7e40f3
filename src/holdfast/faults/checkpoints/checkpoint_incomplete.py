"""A save was interrupted and left part of a checkpoint behind.

What you see   Files like `step_1200.pt.tmp` that no process is writing any more, or a folder of
               `.distcp` shards without `.metadata`. Loading such a folder fails with
               `CheckpointException`, and in it `FileNotFoundError: [Errno 2] No such file or
               directory: '….metadata'`.
Why            The job ended while saving: killed, out of time, out of space. A sharded save writes
               its `.metadata` last, when every rank is done, so a folder without it was never
               finished. A temporary file that was never renamed means the same, and is what a
               careful save leaves behind: the checkpoint before it is untouched.
How to be sure `lsof FILE` shows whether a process still writes to it. A save in progress looks the
               same, so holdfast reports the age.
Fix            If no job is saving there now, remove the leftovers and resume from the previous
               checkpoint. Scripts that pick 'the newest folder' must skip folders without
               `.metadata`.
Known limits   In a log, a missing file may also mean a wrong path or a save by fewer ranks; the
               confidence is lower then.
Sources        torch 2.13.0: torch/distributed/checkpoint/filesystem.py (metadata is written last)
               https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
               https://man7.org/linux/man-pages/man2/rename.2.html
"""

from __future__ import annotations

from holdfast import shell_words
from holdfast.analysis.drill.host_acts import KillDuringSave
from holdfast.analysis.drill.injection import CannotInject, Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import phrases
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import CheckpointItem, MachineFacts, checkpoint_items, known
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD803",
    slug="checkpoint-incomplete",
    traits=RunTraits(priority=249, blocks_start=True),
    related=("checkpoint-corrupt", "world-size-mismatch", "disk-full", "preempted"),
)

FIX = (
    "resume from the newest complete checkpoint; if this one was copied, copy all of it; a script "
    "that picks 'the newest folder' must skip unfinished ones"
)


@FAULT.check(needs=("checkpoints",))
def save_was_interrupted(facts: MachineFacts) -> Finding | list[Finding]:
    if not facts.plan.checkpoint_folders:
        return FAULT.does_not_apply(checkpoint_items.NO_FOLDER)
    items = known(facts.checkpoints)
    folders = [item for item in items if item.incomplete]
    leftovers = [item for item in items if item.kind == "temporary"]
    findings = [_folder(item, items) for item in folders] + [_temporary(t) for t in leftovers]
    return findings or FAULT.ok("no unfinished save in " + ", ".join(facts.plan.checkpoint_folders))


def _folder(item: CheckpointItem, items: tuple[CheckpointItem, ...]) -> Finding:
    newest = next(iter(checkpoint_items.complete(items)), None)
    resume = f"resume from {newest.path}" if newest else "start over: no complete checkpoint exists"
    if newest and newest.age < item.age:
        return FAULT.note(
            f"an older sharded save was never finished: {item.path}",
            reason=f"{item.problem}; there are newer checkpoints",
            evidence=checkpoint_items.evidence(item),
            fix="remove it if it is no longer needed: `rm -r "
            f"{shell_words.word(item.path, 'CHECKPOINT')}`",
        )
    saving = item.age < checkpoint_items.JUST_WRITTEN
    doubt = "; it was written a moment ago and may be a save in progress" if saving else ""
    report = FAULT.warning if saving else FAULT.error
    return report(
        f"the newest sharded checkpoint was never finished: {item.path}",
        reason=f"{item.problem}, so it cannot be loaded{doubt}",
        evidence=checkpoint_items.evidence(item),
        fix=f"{resume}; remove the leftovers with `rm -r "
        f"{shell_words.word(item.path, 'CHECKPOINT')}`",
    )


def _temporary(item: CheckpointItem) -> Finding:
    return FAULT.note(
        f"a save left a temporary file behind: {item.path}",
        reason="it was never renamed to a checkpoint; the previous checkpoint is untouched, and "
        "nothing will load this one unless a script picks files by age",
        evidence=checkpoint_items.evidence(item),
        fix=f"if no job is saving there now, `rm -r {shell_words.word(item.path, 'CHECKPOINT')}`",
    )


# --- while a job runs --------------------------------------------------------------------------


@FAULT.run
def script_could_not_load_it(scene: Scene) -> Verdict | None:
    """A distributed checkpoint that the script loads by itself."""
    failed = [
        ending
        for ending in exits.endings(scene)
        if ending.view.words is not None and ending.view.words.metadata == "missing"
    ]
    causes = {ending.rank for ending in exits.cause(scene)}
    if not causes & {ending.rank for ending in failed}:
        return None
    assert failed[0].view.words is not None
    ranks = tuple(ending.rank for ending in failed)
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} could not load {failed[0].view.words.loading}: it has no "
        ".metadata, which is written last, so its save did not finish"
        f"{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=FIX,
        evidence=[phrases.how_it_ended(ending) for ending in failed],
    )


@FAULT.run
def resume_skipped_an_incomplete_checkpoint(scene: Scene) -> Verdict | None:
    """Nothing to act on: the resume that found it continued with the one before."""
    incomplete = [
        aside
        for aside in scene.checkpoints.set_aside
        if aside.attempt == scene.attempt and aside.part_missing
    ]
    if not incomplete:
        return None
    last = incomplete[-1]
    others = f" (and {len(incomplete) - 1} more)" if len(incomplete) > 1 else ""
    return FAULT.verdict(
        f"skipped incomplete checkpoint {last.path}: {last.why}{others}",
        ranks=(),
        certain=False,
        fix="find out what removes or copies files in that folder: a finished checkpoint has all",
        evidence=[Evidence(quote=aside.why, source=aside.path) for aside in incomplete],
    )


# --- in what is left of a job -------------------------------------------------------------------

NO_METADATA = FAULT.log_pattern(
    "no-metadata",
    r"No such file or directory: b?'(?P<path>(?:[^']*/)?\.metadata)'"
    r"|(?<!\S)(?P<folder>\S{1,400}) is not a distributed checkpoint",
    anchors=(".metadata'", "is not a distributed checkpoint"),
    example="FileNotFoundError: [Errno 2] No such file or directory: '/ckpts/step-1200/.metadata'",
)
SHARDS = FAULT.log_pattern(
    "shards",
    r"Expected (?P<expected>\d+) of '(?P<what>[^']+)' under '(?P<path>[^']+)' but found "
    r"(?P<found>\d+) files|zero checkpoints? paths are missing: (?P<missing>.*)",
    anchors=("Possibly due to an overwrite", "' but found ", "checkpoints paths are missing"),
    example="ValueError: Expected 8 of '*_optim_states.pt' under '/ckpts/global_step90' but found "
    "5 files. Possibly due to an overwrite of an old checkpoint, or a checkpoint didn't get saved "
    "by one or more processes.",
)
NO_LATEST = FAULT.log_pattern(
    "no-latest",
    r"Unable to find latest file at (?P<path>[^,\s]+)"
    r"|Can't find a valid checkpoint at (?P<folder>\S+)"
    r"|No valid checkpoint found in output directory \((?P<output>[^)]+)\)"
    r"|ERROR: Invalid metadata file (?P<tracker>\S+)",
    anchors=(
        "Unable to find latest file at",
        "find a valid checkpoint at",
        "No valid checkpoint found",
        "Invalid metadata file",
    ),
    example="Unable to find latest file at /ckpts/latest, if trying to load latest checkpoint "
    "please ensure this file exists or pass an explicit checkpoint tag when loading a checkpoint.",
)
NO_PART = FAULT.log_pattern(
    "no-part",
    r"No such file or directory: b?'(?P<path>[^']*(?:model|optim|rng|rank|shard|ckpt|checkpoint"
    r"|random_states|scheduler|trainer_state|__\d+_\d+)[^']*"
    r"\.(?:bin|safetensors|pt|pth|distcp|ckpt|pkl|json))(?:'|$)",
    anchors="No such file or directory: ",
    example="FileNotFoundError: [Errno 2] No such file or directory: "
    "'/ckpts/global_step90/zero_pp_rank_3_mp_rank_00_optim_states.pt'",
)
CONFIDENCE = ((NO_METADATA, 0.93), (SHARDS, 0.9), (NO_LATEST, 0.6), (NO_PART, 0.5))
"""of the last one: a wrong path, or a save by fewer ranks, gives the same line"""


@FAULT.explain
def part_of_the_checkpoint_is_missing(wreckage: Wreckage) -> Diagnosis | None:
    for pattern, confidence in CONFIDENCE:
        seen = wreckage.seen(pattern)
        if seen:
            return _missing(seen[0], confidence, seen)
    return None


def _missing(first: Sighting, confidence: float, seen: tuple[Sighting, ...]) -> Diagnosis:
    names = ("path", "folder", "output", "tracker", "missing")
    path = next((first.fields[name] for name in names if name in first.fields), "")
    return FAULT.diagnosis(
        f"the checkpoint being loaded is incomplete: {_what_is_missing(first, path)}",
        confidence=confidence,
        seen=seen,
        culprit=Culprit(what=path),
        fix=FIX,
        next=shell_words.command("ls -la {}", path.rpartition("/")[0] or path),
        unknown=()
        if confidence > 0.8
        else ("whether the save was interrupted or the path is wrong",),
    )


def _what_is_missing(one: Sighting, path: str) -> str:
    if one.pattern == NO_METADATA.name:
        return f"{path} is missing; a sharded save writes it last, when every rank is done"
    if "found" in one.fields:
        expected, found, what = (one.fields[name] for name in ("expected", "found", "what"))
        return f"only {found} of {expected} files {what} exist"
    if one.pattern == NO_LATEST.name:
        return f"no finished save is recorded at {path}"
    return f"{path} is missing"


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill()
def kill_rank_0_while_it_saves(rehearsal: Rehearsal) -> Injection | CannotInject:
    return _killed_in_a_save(rehearsal, 0)


@FAULT.drill("sharded")
def kill_the_last_rank_while_it_saves(rehearsal: Rehearsal) -> Injection | CannotInject:
    """Ranks that write a part each: the checkpoint then lacks one."""
    if rehearsal.job.ranks == 1:
        return CannotInject("the job has one rank")
    return _killed_in_a_save(rehearsal, rehearsal.job.ranks - 1)


def _killed_in_a_save(rehearsal: Rehearsal, rank: int) -> Injection | CannotInject:
    if not any(step > rehearsal.at_step for step in rehearsal.job.saved_after):
        return CannotInject(f"the job saves nothing after step {rehearsal.at_step}")
    return Injection(
        does=f"SIGKILL to rank {rank} with a file of its next checkpoint after step "
        f"{rehearsal.at_step} half written",
        act=KillDuringSave(ranks=(rank,)),
        then=Then.RESTARTS,
        slugs=("rank-killed",),
        beside=(FAULT.slug,),
        culprits=(rank,),
        cannot_load="checkpoint-not-atomic",
        fails_without="a save that replaces the last checkpoint only when it is whole: write to a "
        "temporary name and os.replace it; and a resume that passes over what is incomplete. "
        "`holdfast.Checkpoint` does both",
    )
