"""A checkpoint is damaged.

What you see   On resume: `PytorchStreamReader failed reading zip archive: failed finding central
               directory`, `not a ZIP archive`, `unexpected EOF` (the old format) or `EOFError` (an
               empty file); `Error while deserializing header: …` from safetensors; a flipped bit
               also as `Weights only load failed`, or as `metadata is None; global metadata read
               failed` from a distributed checkpoint. Or the job starts again from step 0 because
               the script caught the error.
Why            The process died, the disk filled up or the node failed while the file was being
               written; or it was copied before it was complete. A torch.save straight to the final
               name replaces the last good copy with half a new one.
How to be sure holdfast reads the structure of the file, not its contents: the zip directory that
               torch.save writes last, the header and extents of safetensors, the shards of a
               distributed checkpoint. A file with a broken structure will not load. An intact
               structure does not prove the contents: `unzip -t FILE` tests the checksums of a
               torch.save file.
Fix            Resume from the previous checkpoint and move the damaged one away; loading it with
               fewer checks, as torch's message advises, does not make it whole. Save to a
               temporary name in the same folder, fsync, then rename; keep at least two.
Known limits   `holdfast check` does not verify the contents: a flipped bit inside a tensor is found
               only by the digests that `resume()` compares, and only in checkpoints written by
               `holdfast.Checkpoint`.
Sources        pytorch/pytorch caffe2/serialize/inline_container.cc (torch.save's zip archive)
               https://github.com/huggingface/safetensors (format)
               https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

import re
from typing import Literal

from holdfast import shell_words, text
from holdfast.analysis.drill.host_acts import DamageCheckpoint
from holdfast.analysis.drill.injection import CannotInject, Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import phrases, resume_refused
from holdfast.analysis.logs import damaged_files
from holdfast.analysis.logs.patterns import resume, unreadable_files
from holdfast.analysis.logs.wreckage import LoggedException, Sighting, Wreckage
from holdfast.analysis.machine import CheckpointItem, MachineFacts, checkpoint_items, known
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD802",
    slug="checkpoint-corrupt",
    traits=RunTraits(priority=248, blocks_start=True),
    related=("checkpoint-incomplete", "checkpoint-not-atomic", "disk-full", "config-changed"),
)

FIX = (
    "resume from the previous checkpoint; if this one came from elsewhere, download or copy it "
    "again (`git lfs pull` for a pointer); save to a temporary name and rename, so that a crash "
    "leaves no half-written file"
)


@FAULT.check(needs=("checkpoints",))
def checkpoint_is_damaged(facts: MachineFacts) -> Finding | list[Finding]:
    if not facts.plan.checkpoint_folders:
        return FAULT.does_not_apply(checkpoint_items.NO_FOLDER)
    complete = [item for item in known(facts.checkpoints) if not _unfinished(item)]
    if not complete:
        return FAULT.ok("no finished checkpoint in " + ", ".join(facts.plan.checkpoint_folders))
    newest = min(item.age for item in complete)
    damaged = [item for item in complete if item.problem]
    if not damaged:
        return FAULT.ok(
            f"the structure of the newest {len(complete)} checkpoint(s) is intact"
            f"{_describe_newest(complete)}"
        )
    intact = [item for item in complete if not item.problem]
    return [_finding(item, intact, newest=item.age == newest) for item in damaged]


def _describe_newest(complete: list[CheckpointItem]) -> str:
    """What its manifest says, and how far that was verified."""
    item = min(complete, key=lambda item: item.age)
    age = f"; the newest is {text.duration(item.age)} old"
    if item.kind != "holdfast":
        return age
    config = f", configuration {item.config}" if item.config else ""
    return (
        f"{age}: step {item.step}, {item.world_size} ranks{config}; sizes match its manifest, "
        "resume() verifies the digests"
    )


def _unfinished(item: CheckpointItem) -> bool:
    """An unfinished save is reported by checkpoint-incomplete."""
    return item.kind == "temporary" or item.incomplete


def _finding(item: CheckpointItem, intact: list[CheckpointItem], *, newest: bool) -> Finding:
    if item.unreadable:  # it may be intact
        return _unreadable(item, newest=newest)
    return _newest(item, intact) if newest else _older(item)


def _unreadable(item: CheckpointItem, *, newest: bool) -> Finding:
    report, which = (FAULT.warning, "the newest") if newest else (FAULT.note, "an older")
    return report(
        f"{which} checkpoint could not be read: {item.path}",
        reason=f"{item.problem}; a resume as this user will fail the same way",
        evidence=checkpoint_items.evidence(item),
        fix="check its owner and permissions: `ls -ld "
        f"{shell_words.word(item.path, 'CHECKPOINT')}`",
    )


def _older(item: CheckpointItem) -> Finding:
    return FAULT.note(
        f"an older checkpoint is damaged: {item.path}",
        reason=f"{item.problem}; there are newer ones, so a resume will not use it",
        evidence=checkpoint_items.evidence(item),
        fix="remove it once you know the reason: `rm -r "
        f"{shell_words.word(item.path, 'CHECKPOINT')}`",
    )


def _newest(item: CheckpointItem, intact: list[CheckpointItem]) -> Finding:
    good = min(intact, key=lambda other: other.age, default=None)
    previous = (
        f"resume from {good.path} ({text.duration(good.age)} old), the newest intact one"
        if good
        else "look for a copy elsewhere: no intact checkpoint is left in the folder"
    )
    saving = item.age < checkpoint_items.JUST_WRITTEN
    doubt = ", unless a save is in progress right now" if saving else ""
    report = FAULT.warning if saving else FAULT.error
    return report(
        f"the newest checkpoint is damaged: {item.path}",
        reason=f"{item.problem}; a resume from this file will fail{doubt}",
        evidence=checkpoint_items.evidence(item),
        fix=previous,
    )


# --- while a job runs --------------------------------------------------------------------------


@FAULT.run
def no_checkpoint_could_be_used(scene: Scene) -> Verdict | None:
    return resume_refused.verdict(FAULT.verdict, scene, FAULT.slug)


@FAULT.run
def script_could_not_load_it(scene: Scene) -> Verdict | None:
    """A checkpoint that the script loads by itself. A restart is not forbidden: another process may
    still have been writing the file."""
    failed = [
        (ending, wrong)
        for ending in exits.endings(scene)
        if (words := ending.view.words) is not None and (wrong := damaged_files.in_words(words))
    ]
    causes = {ending.rank for ending in exits.cause(scene)}
    if not causes & {ending.rank for ending, _ in failed}:
        return None
    first, wrong = failed[0]
    assert first.view.words is not None
    path = first.view.words.loading
    ranks = tuple(ending.rank for ending, _ in failed)
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} could not load {path or 'a checkpoint'}: {wrong}; it is "
        f"damaged, or no checkpoint{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=FIX,
        evidence=[phrases.how_it_ended(ending) for ending, _ in failed],
    )


@FAULT.run
def resume_skipped_a_damaged_checkpoint(scene: Scene) -> Verdict | None:
    """Nothing to act on: the resume that found it continued with the one before."""
    damaged = [
        aside
        for aside in scene.checkpoints.set_aside
        if aside.attempt == scene.attempt and not aside.part_missing
    ]
    if not damaged:
        return None
    last = damaged[-1]
    others = f" (and {len(damaged) - 1} more)" if len(damaged) > 1 else ""
    return FAULT.verdict(
        f"skipped damaged checkpoint {last.path}: {last.why}{others}",
        ranks=(),
        certain=False,
        fix="run `dmesg`: bytes that change on a disk point to a failing disk or cable",
        evidence=[Evidence(quote=aside.why, source=aside.path) for aside in damaged],
    )


# --- in what is left of a job -------------------------------------------------------------------

FAULT.log_patterns.extend(unreadable_files.ALL)


@FAULT.explain
def loading_a_file_failed(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(
        unreadable_files.ARCHIVE,
        unreadable_files.CUT_SHORT,
        unreadable_files.SAFETENSORS,
        unreadable_files.PICKLE,
        unreadable_files.UNPICKLER,
        unreadable_files.METADATA,
        unreadable_files.NO_INPUT,
        unreadable_files.COMPRESSED,
        unreadable_files.RECORD,
        unreadable_files.LFS,
    )
    # A child whose parent died sees the same error on its pipe, not on a file.
    piped = wreckage.seen(unreadable_files.FROM_PARENT)
    seen = tuple(one for one in seen if one.pattern != unreadable_files.NO_INPUT.name or not piped)
    if not seen:
        return None
    by_torch = bool(wreckage.seen(unreadable_files.READING))
    first = max(seen, key=lambda one: (_sure(one, by_torch=by_torch), -one.order))
    path = _path(wreckage)
    return FAULT.diagnosis(
        f"{path or 'the file being loaded'} is damaged or not a checkpoint: "
        f"{damaged_files.what_is_wrong(first.fields, first.line.text)}",
        confidence=_sure(first, by_torch=by_torch),
        seen=(first, *(one for one in seen if one is not first)),
        culprit=Culprit(rank=None if path else first.rank, what=path or "the file being loaded"),
        fix=FIX,
        next=shell_words.command("ls -l {0} && head -c 100 {0}", path),
        unknown=() if path else ("which file it was: the log does not name it",),
    )


@FAULT.explain
def torch_load_failed_without_a_reason(wreckage: Wreckage) -> Diagnosis | None:
    """An empty file, or a small archive whose end is missing: torch's error does not say so."""
    failed = next(filter(_is_bare_failure, wreckage.raised), None)
    if failed is None:
        return None
    path = _path(wreckage)
    return FAULT.diagnosis(
        f"{path or 'the file being loaded'} is damaged or not a checkpoint: torch.load found "
        f"{'an empty file' if failed.kind == 'EOFError' else 'an archive without its end'}",
        confidence=0.9,
        culprit=Culprit(rank=None if path else failed.rank, what=path or "the file being loaded"),
        evidence=[
            Evidence(
                quote=f"{failed.kind}: {failed.text}".rstrip(": "),
                source=failed.line.source,
                line=failed.line.number,
                rank=failed.rank,
            )
        ],
        fix=FIX,
        next=shell_words.command("ls -l {0} && head -c 100 {0}", path),
        unknown=() if path else ("which file it was: the log does not name it",),
    )


def _is_bare_failure(raised: LoggedException) -> bool:
    """miniz looks for the end of a small archive before its beginning, and the seek is refused."""
    told = (raised.kind, raised.text.strip())
    inside = raised.frames[0].file if raised.frames else ""
    reader = re.search(r"torch[/\\](serialization\.py|_weights_only_unpickler\.py)$", inside)
    return reader is not None and told in damaged_files.BARE


def _sure(one: Sighting, *, by_torch: bool) -> float:
    if one.pattern in (
        unreadable_files.ARCHIVE.name,
        unreadable_files.CUT_SHORT.name,
        unreadable_files.SAFETENSORS.name,
        unreadable_files.LFS.name,
        unreadable_files.METADATA.name,
    ):
        return 0.94
    if one.pattern == unreadable_files.UNPICKLER.name:
        return 0.92
    if one.pattern == unreadable_files.RECORD.name:
        return 0.75
    if one.pattern == unreadable_files.PICKLE.name:
        # The file holds sizes twice: two writers at once, as when every rank saves to one name.
        return 0.85 if by_torch or "bytes" in one.fields else 0.7
    if (
        one.pattern == unreadable_files.NO_INPUT.name
    ):  # any empty file that is unpickled says so: caches, too
        return 0.82 if by_torch else 0.5
    return 0.6 if by_torch else 0.4


def _path(wreckage: Wreckage) -> str:
    """The last file that a log line names as being loaded; '' without such a line."""
    named = [
        one.fields["path"]
        for one in wreckage.seen(unreadable_files.READING, resume.LOADING)
        if "path" in one.fields
    ]
    folders = [one.fields["folder"] for one in wreckage.seen(unreadable_files.METADATA)]
    return (*folders, *named)[-1].rstrip(".") if folders or named else ""


# --- drill ---------------------------------------------------------------------------------------

UNTIL_THE_RESUME = 120.0
"""seconds: it is met when the ranks have started again"""


@FAULT.drill(quick=True)
def newest_checkpoint_has_a_flipped_bit(rehearsal: Rehearsal) -> Injection | CannotInject:
    return _damaged(rehearsal, "flip", "a bit flipped in the newest checkpoint")


@FAULT.drill("truncated")
def newest_checkpoint_is_cut_short(rehearsal: Rehearsal) -> Injection | CannotInject:
    return _damaged(rehearsal, "truncate", "the newest checkpoint cut to half its size")


def _damaged(
    rehearsal: Rehearsal, how: Literal["flip", "truncate"], done: str
) -> Injection | CannotInject:
    before = [step for step in rehearsal.job.saved_after if step <= rehearsal.at_step]
    if len(before) < 2:
        return CannotInject(
            f"it needs two checkpoints before step {rehearsal.at_step}, and {len(before)} "
            f"{'was' if len(before) == 1 else 'were'} seen"
        )
    return Injection(
        does=f"{done}, and SIGKILL to rank {rehearsal.rank}, {rehearsal.when}",
        act=DamageCheckpoint(how=how),
        then=Then.RESTARTS,
        culprits=(),
        any_rank=True,  # whichever loads it
        beside=("rank-killed",),
        notice_within=UNTIL_THE_RESUME,
        costs_saves=1,
        told_by_checkpoint=True,
        cannot_load=FAULT.slug,
        fails_without="a check of each checkpoint when it is loaded, and an older one to fall back "
        "to: `holdfast.Checkpoint(…).resume()` takes the newest that verifies",
    )
