"""The records of a run's journal: one struct for each `kind` of line. Pure.

`runs/ID/journal.jsonl` has one JSON object a line, in the order in which things happened. `holdfast
run` writes these types; its report, `holdfast runs` and `holdfast explain` decode the same ones.
docs/journal.md is generated from this file.

A reader skips what it does not understand: half a line (a crash, a full disk), a kind or a field of
a newer holdfast. What an older holdfast did not write has a default.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType


class JournalRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """The base of every line."""

    t: float = 0.0
    """when it was written, wall seconds since 1970; the writer fills it in"""


class AttemptRecord(JournalRecord, frozen=True, kw_only=True):
    """The base of what belongs to one attempt."""

    attempt: int = 0
    """which start of the ranks, from 0"""


class StepsRecord(AttemptRecord, frozen=True, kw_only=True):
    """The base of what says how far an attempt has come."""

    steps: int = 0
    """steps taken in this attempt so far; 0 also where none could be counted"""


def kind_of(record: JournalRecord | type[JournalRecord]) -> str:
    return str(record.__struct_config__.tag)


# --- the run and its ranks -----------------------------------------------------------------------


class LaunchRecord(AttemptRecord, frozen=True, kw_only=True, tag="launch"):
    """The run begins."""

    world: int = 0
    """number of ranks"""
    max_restarts: int = 0
    """as allowed by `--max-restarts`"""
    patience: float = 0.0
    """seconds, as typed behind `--patience`; 0 when it was not"""
    verify_replicas: int = 0
    """steps, as typed behind `--verify-replicas`; 0 when it was not"""


class RankRecord(AttemptRecord, frozen=True, kw_only=True, tag="rank"):
    """A rank was started, raised an exception, or exited."""

    rank: int
    pid: int = 0
    what: Literal["started", "raised", "exited"] = "started"
    code: int | UnsetType = UNSET
    """only with `exited`: its exit code, negative for a signal"""


class ProgressRecord(StepsRecord, frozen=True, kw_only=True, tag="progress"):
    """Steps continue: at the first step, when they have doubled, after a stall, once a minute."""


class TransportRecord(JournalRecord, frozen=True, kw_only=True, tag="transport"):
    """What the ranks communicate over, seen after the first step."""

    seen: str
    warning: str = ""
    """empty, or why that contradicts a setting"""


class LimitRecord(JournalRecord, frozen=True, kw_only=True, tag="limit"):
    """A resource limit of the launcher was raised for the ranks."""

    name: str
    soft: int
    """before"""
    raised_to: int


class FolderRecord(JournalRecord, frozen=True, kw_only=True, tag="folder"):
    """The run's folder does not answer, or answers again: its file system hung."""

    hangs: bool = False
    """true when it does not answer"""
    reason: str = ""
    """the sentence on the screen; where it answers again, what was lost meanwhile"""


class ThinnedRecord(JournalRecord, frozen=True, kw_only=True, tag="thinned"):
    """The journal has become large: from here on progress, saves, evidence and notices of this run
    are left out."""

    bytes: int = 0
    """its size at that time"""


class LeftoversRecord(JournalRecord, frozen=True, kw_only=True, tag="leftovers"):
    """Processes of earlier runs without a launcher were ended before the start."""

    runs: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    stuck: tuple[int, ...] = ()
    """pids that did not exit after SIGKILL"""
    reason: str = ""
    """the sentence on the screen"""


class LeftRecord(AttemptRecord, frozen=True, kw_only=True, tag="left"):
    """Child processes that ranks left running, and that holdfast left alone: the job ended well."""

    pids: tuple[int, ...] = ()
    reason: str = ""


class EndRecord(StepsRecord, frozen=True, kw_only=True, tag="end"):
    """The run is over. Without this line its launcher was killed, or still runs."""

    exit_code: int
    longest_pause: float = 0.0
    """seconds: the longest time without a step that the job came back from by itself"""
    pause_at: str = ""
    """where the rank was that the others waited for in that pause; empty when that was not seen"""
    group_timeout: float = 0.0
    """seconds: the shortest timeout of the ranks' default groups; 0 when unknown"""
    reason: str = ""
    """empty, except where `holdfast stop` had to use SIGKILL, and writes this line itself"""


# --- what holdfast saw, said and did -------------------------------------------------------------


class JudgementRecord(StepsRecord, frozen=True, kw_only=True):
    """The base of a notice and a verdict: one fault, by name."""

    slug: str
    code: str = ""
    ranks: tuple[int, ...] = ()
    """culprits only"""
    victims: tuple[int, ...] = ()
    """ranks that wait for them, or exited as a result"""
    hosts: tuple[str, ...] = ()
    reason: str = ""
    """the sentence on the screen"""
    fix: str = ""
    longest_pause: float = 0.0
    """as in `end`, so far"""
    evidence: str = ""
    """the folder that it rests on; empty when none was written"""


class NoticeRecord(JudgementRecord, frozen=True, kw_only=True, tag="notice"):
    """A fault was named; no action taken."""


class RuleRecord(StepsRecord, frozen=True, kw_only=True, tag="rule"):
    """A rule of the user's own spoke; no action taken."""

    rule: str
    """its name"""
    severity: str = "warning"
    """as the rule says: 'note', 'warning', 'error' or 'cause'"""
    what: Literal["line", "number", "missing", "stopped", "back"] = "line"
    """a line came, or a number in one was too high or too low; no line came in time, or no more;
    it came after all"""
    ranks: tuple[int, ...] = ()
    """that wrote it, or from which it is missing; empty where any rank would do"""
    reason: str = ""
    """the sentence on the screen"""
    quote: str = ""
    """one of the lines, with secrets struck out"""
    count: int = 0
    """of lines since the rule last spoke"""
    fix: str = ""


class VerdictRecord(JudgementRecord, frozen=True, kw_only=True, tag="verdict"):
    """A fault was named, and an action follows."""

    stopped_by: str = ""
    """'SIGTERM', 'SIGINT'…: the signal that told the run to stop; empty when none did. `ranks` are
    then those that stalled the job at that moment."""
    likely: bool = False
    """that it was these ranks is likely, no more: by their stacks alone"""


class ActionRecord(StepsRecord, frozen=True, kw_only=True, tag="action"):
    """What holdfast did to the job."""

    action: Literal["restart", "stop"]
    idle: float = 0.0
    """seconds since the last step"""
    reason: str = ""
    """why, or the signal that the launcher received"""


class EvidenceRecord(AttemptRecord, frozen=True, kw_only=True, tag="evidence"):
    """Stacks, flight recorders and counters were taken."""

    folder: str = ""
    """empty when it could not be written"""
    worlds: dict[str, tuple[int, ...]] = {}
    """where the ranks have formed several default groups: its name -> its ranks, in the order of
    their numbers in it; below zero where not known"""


class SignalRecord(AttemptRecord, frozen=True, kw_only=True, tag="signal"):
    """A signal was sent to ranks: SIGABRT to those whose `holdfast.deadline` had passed; SIGUSR1
    or SIGUSR2, which the launcher received, to those that handle it."""

    signal: str
    ranks: tuple[int, ...] = ()


class OwnFaultRecord(AttemptRecord, frozen=True, kw_only=True, tag="own-fault"):
    """A bug in holdfast: one of its checks of the running job raised, and was skipped."""

    slug: str = ""
    """the fault that could not be judged; empty when another part of the watch failed"""
    face: str = ""
    """the function or the part that raised"""
    exception: str = ""


class DiagnosisRecord(JournalRecord, frozen=True, kw_only=True, tag="diagnosis"):
    """What `holdfast explain` says about the folder of a run that failed."""

    slug: str
    code: str = ""
    confidence: float = 0.0
    """0 to 1"""
    ranks: tuple[int, ...] = ()
    victims: tuple[int, ...] = ()
    reason: str = ""
    fix: str = ""


# --- what a rank reported of its checkpoints ------------------------------------------------------


class EventRecord(AttemptRecord, frozen=True, kw_only=True):
    """The base of what a rank reports in its events file."""

    rank: int = 0
    told_at: float | None = None
    """wall seconds by the rank's own clock: the launcher hears of several events at once"""


class SavedRecord(EventRecord, frozen=True, kw_only=True, tag="saved"):
    """A checkpoint is safe on disk."""

    step: int
    path: str
    bytes: int = 0
    stall: float = 0.0
    """seconds that training paused for it"""
    seconds: float = 0.0
    """how long writing it took"""
    made_room: tuple[str, ...] = ()
    """checkpoints that were removed before it, as the disk was full"""
    any_world: bool = False
    """a job with another number of ranks can resume from it"""


class SaveFailedRecord(EventRecord, frozen=True, kw_only=True, tag="save-failed"):
    """A checkpoint could not be saved; training continues."""

    step: int
    why: str = ""
    errno: int | None = 0
    """0 when it was no error of the operating system"""
    where: str = ""
    safe: int | None = None
    """the newest step that is on disk; none when nothing is, or it is not known"""
    unsaved: float = 0.0
    """seconds since that one was saved, or since the rank began"""
    made_room: tuple[str, ...] = ()
    """checkpoints that were removed for it"""


class CadenceRecord(EventRecord, frozen=True, kw_only=True, tag="cadence"):
    """How often the library saves from now on."""

    interval: float
    """seconds between two saves"""
    stall: float = 0.0
    """seconds that training pauses for one"""
    mtbf: float | None = None
    """seconds between two failures, as expected"""


class SetAsideRecord(EventRecord, frozen=True, kw_only=True, tag="set-aside"):
    """A checkpoint did not verify, and was moved out of the way."""

    path: str
    why: str = ""
    problem: str = ""
    """'missing' when a file is not there, 'changed' when its bytes are not those that were saved,
    'unreadable' when it could not be looked at"""


class StartRecord(EventRecord, frozen=True, kw_only=True):
    """The base of what says at which step an attempt began."""

    reached: int | UnsetType = UNSET
    """only after a restart: the step that the job had come to before it"""
    repeated: int | UnsetType = UNSET
    """only after a restart: how many of those steps are done again"""


class ResumeRecord(StartRecord, frozen=True, kw_only=True, tag="resume"):
    """`Checkpoint.resume()` returned."""

    step: int
    """0 when there was no checkpoint"""
    path: str = ""
    """empty when there was no checkpoint"""
    world_size: int = 0
    saved_world: int = 0
    """number of ranks that saved it; 0 when unknown"""
    data: str = ""
    """how the data position was saved: 'global', 'per-rank', 'unknown' or empty"""
    accepted: tuple[str, ...] = ()
    """differences that the user accepted"""


class FirstStepRecord(StartRecord, frozen=True, kw_only=True, tag="first-step"):
    """Rank 0 just before the first step of an attempt, seen without the library's help."""

    digest: str
    """of a few parameters; empty when they could not be read"""
    optimizer_step: int | None = None
    """steps that the optimizer has counted; null when it counts none"""
    loaded: bool = False
    """torch.load or load_state_dict had been called"""
    other_ways: bool = False
    """a library is imported that can load a checkpoint without them"""
    optimizer_loaded: bool = False
    """an optimizer's load_state_dict had been called: the script resumes"""
    guess: str | UnsetType = UNSET
    """only after a restart without the library: 'zero', 'resumed' or 'unknown'"""
    why: str | UnsetType = UNSET
    """only with a guess: what it rests on"""
    sure: bool | UnsetType = UNSET
    """only with a guess"""


class ParametersMovedRecord(EventRecord, frozen=True, kw_only=True, tag="parameters-moved"):
    """What the digest of `first-step` was made of has changed since."""

    step: int = 0
    """steps that the optimizer had taken in this attempt; it is looked at after 1, 2, 4, 8 …"""


class ScriptSavedRecord(EventRecord, frozen=True, kw_only=True, tag="script-saved"):
    """The script saved by itself, with torch.save or torch.distributed.checkpoint; at most one a
    second is reported."""

    step: int = 0
    """of this attempt"""
    path: str = ""
    """as the script gave it; empty when it went to memory first"""
    optimizer: bool = False
    """it holds the state of an optimizer, not only of a model"""


class NotFiniteRecord(EventRecord, frozen=True, kw_only=True, tag="not-finite"):
    """An optimizer took a step with a loss, or gradients, that are NaN or infinite."""

    what: Literal["loss", "gradients"] = "loss"
    step: int = 0
    """of this attempt"""
    value: str = ""
    """'nan', 'inf' or '-inf'; of several losses in one step their sum"""
    row: int = 1
    """how many steps in a row it has been so; the third is the last that is reported"""


class ReplicasRecord(AttemptRecord, frozen=True, kw_only=True, tag="replicas"):
    """What `--verify-replicas` came to, when an attempt is over."""

    checks: int = 0
    """how often all ranks were compared"""
    last_step: int = 0
    """of this attempt, at which they were compared last"""
    different: tuple[int, ...] = ()
    """ranks whose parameters were to be the same and were not; empty when they always were"""
    different_at: int = 0
    """the step of this attempt at which that was seen first; 0 when it was not"""
    refused: tuple[str, ...] = ()
    """why ranks could not be compared, each reason once"""
    bytes: int = 0
    """compared on each rank"""
    gpu: float = 0.0
    host: float = 0.0
    """seconds of the GPU, and of the script, that a check usually took (the median)"""
    share: float = 0.0
    """of the training time, from 0 to 1, that both took together"""


class RankEventRecord(EventRecord, frozen=True, kw_only=True, tag="rank-event"):
    """An event that this holdfast does not understand, as the rank wrote it."""

    told: dict[str, Any] = {}


RECORDS: tuple[type[JournalRecord], ...] = (
    LaunchRecord,
    RankRecord,
    ProgressRecord,
    TransportRecord,
    LimitRecord,
    FolderRecord,
    ThinnedRecord,
    LeftoversRecord,
    LeftRecord,
    EndRecord,
    NoticeRecord,
    RuleRecord,
    VerdictRecord,
    ActionRecord,
    EvidenceRecord,
    SignalRecord,
    OwnFaultRecord,
    DiagnosisRecord,
    SavedRecord,
    SaveFailedRecord,
    CadenceRecord,
    SetAsideRecord,
    ResumeRecord,
    FirstStepRecord,
    ParametersMovedRecord,
    ScriptSavedRecord,
    NotFiniteRecord,
    ReplicasRecord,
    RankEventRecord,
)
"""every kind that is written"""
EVENTS: dict[str, type[EventRecord]] = {
    kind_of(record): record
    for record in RECORDS
    if issubclass(record, EventRecord) and record is not RankEventRecord
}
"""those that a rank may report, by kind"""


# --- reading -------------------------------------------------------------------------------------

_DECODER: msgspec.json.Decoder[JournalRecord] = msgspec.json.Decoder(
    functools.reduce(operator.or_, RECORDS)  # the tagged union of them all
)


def decode(line: bytes) -> JournalRecord | None:
    """One line; None where it is torn, damaged, or of a kind that is not known here."""
    with contextlib.suppress(ValueError, RecursionError):  # msgspec's errors are ValueErrors
        return _DECODER.decode(line)
    return None


def decode_lines(content: bytes) -> Iterator[tuple[int, JournalRecord]]:
    """The records of a journal, each with the number of its line, from 1. Never raises."""
    for number, line in enumerate(content.split(b"\n"), start=1):
        record = decode(line)
        if record is not None:
            yield number, record


def event(kind: str, told: dict[str, Any], *, rank: int, attempt: int) -> EventRecord:
    """The record of what a rank reported; never raises, whatever a rank may have written."""
    at = told.get("t")
    is_time = isinstance(at, (int, float)) and not isinstance(at, bool)
    told_at = float(at) if is_time else None  # type: ignore[arg-type]
    fields = {**told, "rank": rank, "attempt": attempt, "told_at": told_at, "kind": kind, "t": 0.0}
    if (wanted := EVENTS.get(kind)) is not None:
        with contextlib.suppress(ValueError):
            return msgspec.convert(fields, type=wanted)
    return RankEventRecord(rank=rank, attempt=attempt, told_at=told_at, told={"kind": kind, **told})
