"""What was seen of one job of a drill, and what was made of it: one row of the table."""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.analysis.drill.records import RankAttempt


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """The runner named a fault: a notice or verdict of holdfast, a line of another launcher."""

    t: float
    kind: Literal["notice", "verdict", "line"]
    slug: str = ""
    """'' where the launcher gives its faults no names"""
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    reason: str = ""


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """A point on the timeline."""

    t: float
    what: str
    kind: Literal["start", "fault", "said", "action", "resume", "step", "lifted", "end"]


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of one job, from its first start to its last end."""

    attempts: tuple[RankAttempt, ...]
    """of all ranks; in the order in which they began"""
    starts: tuple[float, ...]
    """when the drill started the runner: once, or again after it had ended"""
    exit_codes: tuple[int | None, ...]
    """of each start; None: it did not end by itself, and was ended"""
    injected: float | None = None
    """when the fault was there; None: it never came"""
    lifted: float | None = None
    ended: float = 0.0
    said: tuple[Spoken, ...] = ()
    happened: tuple[Happened, ...] = ()
    """beside what follows from the fields above"""
    saved: tuple[int, ...] = ()
    """steps whose checkpoints were there when the fault came, as the runner or the disk says"""
    listing: tuple[tuple[str, int, float], ...] = ()
    """of the job's folder when the fault came: path below it, bytes, time of the last change. Of an
    undisturbed job all that it ever held, so that a file may be in it several times"""
    left: tuple[str, ...] = ()
    """what the job left behind and the undisturbed one did not: 'process 4711: python train.py',
    '/dev/shm/torch_1', 'port 29500'"""
    folder: str = ""


class BrokenPromise(msgspec.Struct, frozen=True, kw_only=True):
    promise: Literal[
        "load", "notice", "name", "recover", "repeat", "data", "loss", "weights", "clean"
    ]
    """load: a damaged checkpoint was taken for a whole one"""
    seen: str
    """what was seen, in a sentence"""
    fix: str = ""
    """what to change, where it is the script's to keep"""
    slug: str = ""
    """of the fault in the script, where it has a name: 'restart-from-zero'"""


Comparison = Literal["identical", "same", "differs", "unknown"]
"""bit for bit; within rounding, where the job does not repeat its own bits or has other ranks"""


TracePoint = tuple[float, int, float | None]
"""wall seconds, step of the job (from 1), loss"""


class TrainedAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt as the page draws it: what its lowest rank trained, and when."""

    began: float
    """wall seconds"""
    points: tuple[TracePoint, ...] = ()
    """thinned where there are many; the first and the last stay"""


class DrillRow(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: what it was, and what became of it."""

    drill: str
    does: str
    status: Literal["kept", "broken", "unproven", "skipped"]
    """unproven: nothing was broken, but not every promise could be checked"""
    why: str = ""
    """of a skipped or unproven one"""
    noticed: float | None = None
    """seconds from the fault to the first sentence about it"""
    named: str = ""
    """the name it was given last, and whom: 'rank-killed: rank 2'"""
    named_right: bool | None = None
    recovered: float | None = None
    """seconds from the fault to the first step of the ranks that resumed"""
    repeated: int | None = None
    """steps done again"""
    data: Comparison = "unknown"
    loss: Comparison = "unknown"
    weights: Comparison = "unknown"
    left: tuple[str, ...] = ()
    broken: tuple[BrokenPromise, ...] = ()
    unchecked: tuple[str, ...] = ()
    """what could not be checked, each with the reason: 'loss: none was seen in any step'"""
    remarks: tuple[str, ...] = ()
    """how it was compared, where that was not bit for bit"""
    repeats_itself: bool | None = None
    """the job had the bits of the undisturbed one where no fault was yet; None: not known"""
    seconds: float = 0.0
    timeline: tuple[Happened, ...] = ()
    """in wall seconds, in this order"""
    trained: tuple[TrainedAttempt, ...] = ()
    """every attempt, the first one first; empty: nothing to draw"""
    folder: str = ""


class DrillReport(msgspec.Struct, frozen=True, kw_only=True):
    """A whole drill: what `--json` prints and the page shows."""

    command: tuple[str, ...]
    """of the job, as typed"""
    runner: str
    ranks: int
    hosts: int
    steps: int
    reference_seconds: float
    rows: tuple[DrillRow, ...]
    seconds: float
    started: float
    reference: TrainedAttempt | None = None
    """what the undisturbed job trained"""
    patience: float = 0.0
    """seconds, as the runner was told; 0: not known"""
    unfenced: str = ""
    """why the kernel could not keep programs and native code of the job from writing elsewhere;
    '' where it did"""
    folder: str = ""
    page: str = ""
    """the HTML file, where it was written"""
    versions: dict[str, str] = msgspec.field(default_factory=dict)

    @property
    def repeats_itself(self) -> bool | None:
        """The undisturbed part of every job had the same bits; None: could not be compared."""
        told = [row.repeats_itself for row in self.rows if row.repeats_itself is not None]
        return all(told) if told else None

    @property
    def broken(self) -> tuple[DrillRow, ...]:
        return tuple(row for row in self.rows if row.status == "broken")
