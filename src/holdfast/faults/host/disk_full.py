"""The disk for checkpoints or logs is full.

What you see   `OSError: [Errno 28] No space left on device` or `[Errno 122] Disk quota exceeded`.
               torch.save hides it: `RuntimeError: [enforce fail at inline_container.cc…] unexpected
               pos 576 vs 534`, or `PytorchStreamWriter failed … file write failed`. The save fails
               halfway, sometimes while overwriting the only good checkpoint; then the job fails.
Why            No bytes are left, no inodes are left (many small files), or the quota of the user or
               project is used up while df still shows free space. A new checkpoint is written
               beside the old one, so both must fit.
How to be sure `df -h FOLDER; df -i FOLDER; quota -s` (Lustre: `lfs quota`). holdfast writes a small
               unnamed file there, which reveals quotas too, and compares the free space with the
               largest checkpoint in the folder.
Fix            Remove old checkpoints, or use another folder; keep only the newest few. Ask for more
               quota where that is the limit.
Known limits   `check` knows only the folders that were named, and judges the next save by the
               largest checkpoint already there. A truncated write in torch's old formats shows the
               same error for any cause.
Sources        https://man7.org/linux/man-pages/man2/write.2.html (ENOSPC, EDQUOT)
               https://man7.org/linux/man-pages/man3/statvfs.3.html
               https://docs.pytorch.org/docs/stable/generated/torch.save.html
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence

from holdfast import shell_words, text
from holdfast.analysis.drill.host_acts import FillDisk
from holdfast.analysis.drill.injection import CannotInject, Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import phrases
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.patterns import no_space
from holdfast.analysis.logs.patterns.no_space import FULL, in_shared_memory
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import CheckpointItem, Folder, MachineFacts, known
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD407",
    slug="disk-full",
    related=("folder-unwritable", "shm-too-small", "checkpoint-incomplete"),
    traits=RunTraits(priority=215, is_news=True),
)
FAULT.log_patterns.extend(no_space.ALL)
FAULT.errno(errno.ENOSPC, "no space left on the device")

LOW = {"checkpoints": 1 << 30, "logs": 100 << 20}
WHY_FULL = {"ENOSPC": "no space is left on the device", "EDQUOT": "the quota is used up"}


@FAULT.check(needs=("folders",))
def folder_full(facts: MachineFacts) -> Finding | list[Finding]:
    folders = known(facts.folders)
    if not folders:
        return FAULT.does_not_apply("no checkpoint or log folder was named")
    return [_judge(folder) for folder in folders]


def _judge(folder: Folder) -> Finding:
    where = f"{folder.path} ({folder.purpose})"
    if not _is_writable(folder):
        return FAULT.does_not_apply(f"{where} is not a writable folder: see folder-unwritable")
    why_full = WHY_FULL.get(folder.write_error, "")
    if not why_full and _inodes_exhausted(folder):
        why_full = "no inodes are left, so no file can be created"
    if not why_full and folder.free == 0 and folder.size > 0:
        why_full = "no space is left for this user"
    if why_full:
        return FAULT.error(
            f"nothing can be written to {where}: {why_full}",
            reason="writing a small file there failed"
            if folder.write_error
            else "reported by the file system",
            evidence=[_evidence(folder)],
            fix=f"free some space (`du -xsh {shell_words.word(folder.looked_at, 'FOLDER')}/* | "
            "sort -h | tail`), or use a "
            "folder on another disk",
        )
    if _is_scarce(folder):
        return FAULT.warning(
            f"only {text.size(folder.free)} is free for {where}",
            reason="a model of 100 million parameters takes 1.2 GB with its Adam state"
            if folder.purpose == "checkpoints"
            else "the logs of a long run may not fit",
            evidence=[_evidence(folder)],
            fix="free some space, or use a folder on another disk",
        )
    return FAULT.ok(f"{where} has {text.size(folder.free)} free")


@FAULT.check(needs=("checkpoints", "folders"))
def next_checkpoint_may_not_fit(facts: MachineFacts) -> list[Finding]:
    folders = [
        f
        for f in (
            facts.folders if isinstance(facts.folders, tuple) else ()
        )  # reported by the face above
        if f.purpose == "checkpoints" and _is_writable(f) and not _is_scarce(f)
    ]
    found = []
    for folder in folders:
        largest = _largest_below(folder, known(facts.checkpoints))
        if largest is None:
            continue
        takes, has = _missing_space(folder, largest)
        if not takes:
            found.append(
                FAULT.ok(f"the next checkpoint fits into {folder.path}: {text.size(largest.size)}")
            )
            continue
        found.append(
            FAULT.warning(
                f"the next checkpoint may not fit into {folder.path}",
                reason=f"the largest one there takes {takes}, and {has} is free; the old "
                "checkpoint stays until the new one is written",
                evidence=[
                    _evidence(folder),
                    Evidence(quote=text.size(largest.size), source=largest.path),
                ],
                fix="remove checkpoints that are no longer needed, or keep fewer",
            )
        )
    return found


def _is_writable(folder: Folder) -> bool:
    """A read-only image has no free byte either, but that is not why nothing can be saved."""
    return folder.is_directory and not folder.read_only


def _is_scarce(folder: Folder) -> bool:
    """Some network file systems do not report their size: 0 of 0 is not 'full'."""
    return folder.size > 0 and folder.free < LOW[folder.purpose]


def _inodes_exhausted(folder: Folder) -> bool:
    """btrfs and some network file systems count no inodes: 0 of 0 is not 'exhausted'."""
    return folder.inodes > 0 and folder.inodes_free == 0


def _largest_below(
    folder: Folder, checkpoints: tuple[CheckpointItem, ...]
) -> CheckpointItem | None:
    there = [c for c in checkpoints if c.path.startswith(folder.path.rstrip("/") + "/")]
    return max(there, key=lambda c: c.size, default=None)


def _missing_space(folder: Folder, largest: CheckpointItem) -> tuple[str, str]:
    """What it takes and what is free, in words; two empty strings when it fits."""
    if not _fits(folder, largest.size):
        return text.size(largest.size), text.size(folder.free)
    # Its files, their folder, and a part file for each rank while saving.
    inodes = 2 * largest.files + 2
    if folder.inodes > 0 and folder.inodes_free < inodes:
        return f"{inodes} inodes", f"room for {folder.inodes_free} files"
    return "", ""


def _fits(folder: Folder, size: int) -> bool:
    """Room for one is required; on a nearly full disk, for two."""
    return folder.free >= (2 * size if folder.free < folder.size * 0.05 else size)


def _evidence(folder: Folder) -> Evidence:
    inodes = f", inodes {folder.inodes_free} of {folder.inodes} free" if folder.inodes else ""
    tried = f", writing: {folder.write_error}" if folder.write_error else ""
    return Evidence(
        quote=f"{folder.filesystem}: {text.size(folder.free)} of {text.size(folder.size)} "
        f"free{inodes}{tried}",
        source=folder.looked_at,
    )


# --- run -----------------------------------------------------------------------------------------

NO_SPACE = re.compile(r"\[Errno (28|122)\]|No space left on device|Disk quota exceeded")
SHORT_WRITE = re.compile(r"inline_container\.cc.*unexpected pos|PytorchStreamWriter failed")
"""how torch.save reports a failed write, whatever the reason"""


@FAULT.run
def disk_full_first(scene: Scene) -> Verdict | None:
    failed = [
        e
        for e in exits.cause(scene)
        if e.view.words
        and (NO_SPACE.search(e.view.words.text) or SHORT_WRITE.search(e.view.words.text))
    ]
    if not failed:
        return None
    ranks = [e.rank for e in failed]
    victims = exits.fallen(scene, ranks)
    words = failed[0].view.words
    assert words is not None
    sure = NO_SPACE.search(words.text)
    what = (
        "found no space left on the disk"
        if sure
        else "could not write a file (usually a full disk)"
    )
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} {what}{phrases.at_step(failed[0].view)}: "
        f"{phrases.quoted(words)}{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="see what is full with `df -h; df -i; quota -s`, and remove old checkpoints there",
        evidence=[phrases.how_it_ended(e) for e in failed],
    )


@FAULT.run
def saves_find_the_disk_full(scene: Scene) -> Verdict | None:
    """Nothing to act on: training continues. But every step is at stake until there is room; where
    that came with the next save, both may be read at once."""
    failure = scene.checkpoints.last_failure
    if failure is None or failure.attempt != scene.attempt or not failure.disk_full:
        return None
    failing = scene.checkpoints.saves_failed
    outcome = "training continues, next save as planned" if failing else "a later save went well"
    return FAULT.verdict(
        f"step {failure.step} could not be saved: {failure.why}"
        f"{f' in {failure.where}' if failure.where else ''}; {failure.at_stake}; {outcome}",
        ranks=(),
        certain=False,
        fix="see what is full with `df -h; df -i; quota -s`, and make room there",
        evidence=[Evidence(quote=failure.why, source=failure.where or "the save")],
    )


# --- explain -------------------------------------------------------------------------------------

WRITER = FAULT.log_pattern(
    "writer",
    r"inline_container\.cc.*unexpected pos \d+ vs \d+|PytorchStreamWriter failed (?:writing|clos)",
    anchors=("unexpected pos ", "PytorchStreamWriter failed"),
    example="RuntimeError: [enforce fail at inline_container.cc:626] . unexpected pos 576 vs 470",
)
UNFINISHED = FAULT.log_pattern(
    "unfinished",
    # numpy's tofile, C++ streams and torch's old format: a short write, for any reason.
    r"\b\d{1,20} requested and (?P<written>\d{1,20}) written|basic_ios::clear: iostream error"
    r"|write\(\): fd \d{1,6} failed with",
    anchors=(" requested and ", "ios::clear: iostream", "write(): fd "),
    example="OSError: 12582912 requested and 4431872 written",
)
EPHEMERAL = FAULT.log_pattern(
    "ephemeral",
    r"low on resource: ephemeral-storage|ephemeral local storage usage exceeds"
    r"|exceeded its local ephemeral storage limit"
    r"|Usage of EmptyDir volume \"(?!\w*shm)[^\"]+\" exceeds",
    anchors=(
        *("ephemeral-storage", "ephemeral local storage", "local ephemeral storage"),
        "Usage of EmptyDir volume",
    ),
    example="The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi",
)
PATH = re.compile(r"['\"<](/[^'\"<>]+)['\">]|:\s(/\S+?):? ")


@FAULT.explain
def no_space_to_write(wreckage: Wreckage) -> Diagnosis | None:
    full = [
        one
        for one in wreckage.seen(FULL, EPHEMERAL)
        if "inotify" not in one.line.text and not in_shared_memory(wreckage, one)
    ]
    seen = full or list(wreckage.seen(WRITER) or wreckage.seen(UNFINISHED))
    if not seen:
        return None
    quota = any(re.search(r"(?i)quota|122\b", one.line.text) for one in seen)
    path = _path(seen)
    line = seen[0].line
    what = (
        f"could not finish writing{_in_brackets(path)}: usually a full disk, but any failed write "
        "looks like this"
        if not full
        else f"used up its quota{_in_brackets(path)}"
        if quota
        else f"found no space left on the disk{_in_brackets(path)}"
    )
    # A bare 'No space left on device' may also mean /dev/shm: only a path proves it.
    settled = bool(full) and (bool(path) or quota or bool(wreckage.seen(EPHEMERAL)))
    return FAULT.diagnosis(
        f"{sightings.who(seen)} {what}",
        confidence=0.95 if settled else 0.8 if full else _confidence_of_short_write(seen),
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid, what=path),
        fix="free some space or use another disk: remove old checkpoints, keep only the newest "
        "few; "
        + ("ask for more quota" if quota else "check inodes too, which can run out before bytes"),
        next=_free_space_command(path) + ("; quota -s" if quota else ""),
        unknown=[] if path else ["which file system: the log names no path"],
    )


def _free_space_command(path: str) -> str:
    """Of the folder: the file could not be created."""
    return shell_words.command("df -h {0}; df -i {0}", path.rpartition("/")[0] or ".")


def _confidence_of_short_write(seen: Sequence[Sighting]) -> float:
    """Streams and old formats report any failed write with the same words."""
    hidden = all(UNFINISHED.regex.search(one.line.text) for one in seen)
    return 0.5 if hidden and not sightings.field(seen, "written") else 0.7


def _path(seen: Sequence[Sighting]) -> str:
    """The first path in these lines."""
    found = (PATH.search(one.line.text) for one in seen)
    return next((match[1] or match[2] for match in found if match), "")


def _in_brackets(path: str) -> str:
    return f" ({path})" if path else ""


# --- drill ---------------------------------------------------------------------------------------

UNTIL_THE_NEXT_SAVE = 600.0
"""seconds: a disk that is full is met by who writes"""


@FAULT.drill()
def checkpoints_find_no_space(rehearsal: Rehearsal) -> Injection | CannotInject:
    if not any(step > rehearsal.at_step for step in rehearsal.job.saved_after):
        return CannotInject(f"the job saves nothing after step {rehearsal.at_step}")
    return Injection(
        does=f"no space left for checkpoints {rehearsal.when}, until that was said",
        act=FillDisk(),
        then=Then.RECOVERS,
        culprits=(),
        any_rank=True,
        notice_within=UNTIL_THE_NEXT_SAVE,
        lifted=True,
        told_by_checkpoint=True,
        fails_without="a save that leaves the last checkpoint whole where the disk is full: write "
        "to a temporary name, then rename; `holdfast.Checkpoint` does, and trains on",
    )
