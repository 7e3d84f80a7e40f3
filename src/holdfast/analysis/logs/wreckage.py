"""What was found in the wreckage of a job: frozen nouns, no I/O, no judgement.

Ranks are global ones everywhere. `[PG … Rank r]` and NCCL's `[0]` are not (group-local, CUDA
device); the readers have translated or dropped them. Times are wall seconds as the line tells
them, without a year or zone in many logs: good for gaps within one source, and across sources
only where a gap is far larger than clocks differ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TypeVar, cast

import msgspec

from holdfast.analysis.logs.pattern import LogPattern, Role
from holdfast.analysis.logs.rule_matches import RulesSeen
from holdfast.analysis.machine import Unread
from holdfast.analysis.ras.answer import RasAnswer
from holdfast.analysis.scene.scene import Frame, Recorder, Stack
from holdfast.findings import Evidence

_Answer = TypeVar("_Answer")


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    """without its head and terminal escapes; cut when very long"""
    source: str
    """the file as the user would name it; '<stdin>'; 'bundle.tar.gz: rank0.log'"""
    number: int
    """from 1"""
    rank: int | None = None
    local_rank: int | None = None
    host: str = ""
    pid: int | None = None
    at: float | None = None


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """A line that matches a log pattern."""

    pattern: str
    """the name of that LogPattern"""
    slug: str
    role: Role
    line: LogLine
    fields: dict[str, str] = {}
    """the named groups of its pattern that took part"""
    count: int = 1
    """how many such lines of this rank there were in all; only the first few are kept"""
    order: int = 0
    """position among everything read: comparable only within one source"""

    @property
    def rank(self) -> int | None:
        return self.line.rank


class LoggedException(msgspec.Struct, frozen=True, kw_only=True):
    """A Python exception that went to the log, with its traceback where there was one."""

    kind: str
    """'torch.distributed.DistBackendError'"""
    text: str
    """its message, following lines included as far as they could be told apart"""
    frames: tuple[Frame, ...] = ()
    """innermost first"""
    line: LogLine
    """the line that names it"""
    consequence: str = ""
    """one of `consequences` (lost-peer, timed-out…), '' when it may be the cause"""
    root_slugs: tuple[str, ...] = ()
    """faults whose own log pattern matches it: a better name than 'an exception'"""
    order: int = 0
    launcher: bool = False
    """the launcher raised it, not a rank"""
    steps_after: int = 0
    """where it was survived: how many different steps its writer counted after it"""
    times: int = 1
    """tracebacks of it in its log, where no line says whose they are"""

    @property
    def rank(self) -> int | None:
        return self.line.rank


class Exit(msgspec.Struct, frozen=True, kw_only=True):
    """How a process ended, as a launcher, scheduler or journal reports it."""

    code: int
    """negative for a signal, as Python gives it"""
    line: LogLine
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    host: str = ""
    teller: str = ""
    """'torchrun', 'deepspeed', 'slurm', 'holdfast'…"""
    teardown: bool = False
    """the launcher ended it itself, after another one had failed"""
    first: bool = False
    """the teller says that this was the first failure it saw"""


class RankRemains(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is left of one rank."""

    rank: int
    local_rank: int | None = None
    host: str = ""
    pid: int | None = None
    logs: tuple[str, ...] = ()
    """sources that are this rank's alone"""
    first: LogLine | None = None
    last: LogLine | None = None
    """its last line of any kind, where its lines can be told from the others'"""
    sightings: tuple[Sighting, ...] = ()
    raised: tuple[LoggedException, ...] = ()
    exit: Exit | None = None
    recorder: Recorder | Unread | None = None
    """its flight recorder: a dump, or what its watchdog's messages show; None: nothing"""
    dumped: bool = False
    """it wrote a dump, so it was alive when the others timed out"""
    stack: Stack | None = None
    """its main thread at the end, innermost first"""
    nccl_stage: int = -1
    """how far it came in NCCL's start (see patterns/nccl.py: STAGES); -1 unknown"""
    idle: bool | None = None
    """its process did nothing while it was watched; None where the job is not running"""
    finished: bool = False
    """it exited as a healthy rank does (exit code 0, or so says the run's journal)"""


class InputSource(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    """'log', 'recorder', 'stacks', 'kernel', 'journal', 'error file', 'settings', 'facts'"""
    rank: int | None = None
    size: int = 0
    problem: str = ""
    """why it could not be read, or not all of it"""


class LiveVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict or notice of `holdfast run`, which saw what no folder keeps."""

    code: str
    slug: str
    ranks: tuple[int, ...]
    victims: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    """nodes of the culprits, or both ends of a path; () where the run did not tell"""
    reason: str
    fix: str = ""
    verdict: bool
    """it was acted on; otherwise a notice"""
    stopped: bool = False
    """a signal ended the run while it lasted: what was seen, and nothing proved it a hang"""
    likely: bool = False
    """that it was these ranks is likely, no more"""
    afterwards: str = ""
    """what became of the run then, where it continued: 'the run was restarted after it…'"""
    line: LogLine


class LostRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of holdfast whose launcher wrote no end."""

    line: LogLine
    """the last one of its journal"""
    gone: bool
    """its launcher is known to be; else it may have been running when this copy was made"""


class Wreckage(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    sources: tuple[InputSource, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    """in the order read; within a source that is the order written"""
    raised: tuple[LoggedException, ...] = ()
    exits: tuple[Exit, ...] = ()
    ranks: tuple[RankRemains, ...] = ()
    world_size: int | None = None
    """from the logs; None when nothing says"""
    settings: dict[str, str] = {}
    """environment variables that the logs show, e.g. NCCL_SOCKET_IFNAME"""
    versions: dict[str, str] = {}
    """'torch', 'nccl', 'cuda', 'driver', 'python' as the logs show them"""
    live_verdicts: tuple[LiveVerdict, ...] = ()
    """of our own run folders, in the attempt that is explained; oldest first"""
    ras: tuple[RasAnswer, ...] = ()
    """what NCCL's RAS said while the job ran, oldest first"""
    lost_runs: tuple[LostRun, ...] = ()
    rules: RulesSeen = RulesSeen()
    """what logs and journals show of the user's own rules"""

    def seen(self, *patterns: LogPattern) -> tuple[Sighting, ...]:
        """Every sighting of any of these, in the order read."""
        places = [n for s in set(patterns) for n in self._places.get(s.name, ())]
        return tuple(self.sightings[n] for n in sorted(places))

    @functools.cached_property
    def _places(self) -> dict[str, list[int]]:
        """Faults ask hundreds of times, and a large job leaves thousands of sightings."""
        places: dict[str, list[int]] = {}
        for number, one in enumerate(self.sightings):
            places.setdefault(one.pattern, []).append(number)
        return places

    def memo(self, question: Callable[[Wreckage], _Answer]) -> _Answer:
        """The answer of a pure function, computed once for this wreckage. Two threads that ask
        at the same moment may both compute it; they get the same object."""
        answers: dict[object, object] = self.__dict__.setdefault("_answers", {})
        if question not in answers:
            answers.setdefault(question, question(self))
        return cast("_Answer", answers[question])

    def rank(self, number: int) -> RankRemains | None:
        return self._by_rank.get(number)

    @functools.cached_property
    def _by_rank(self) -> dict[int, RankRemains]:
        return {one.rank: one for one in reversed(self.ranks)}

    def roots(self, rank: int | None = None, *, but: Iterable[str] = ()) -> tuple[Sighting, ...]:
        """Sightings that may be a cause, of one rank or of all, without those of some faults."""
        other = set(but)
        return tuple(
            one
            for one in self.sightings
            if one.role is Role.ROOT
            and one.slug not in other
            and (rank is None or one.rank == rank)
        )

    @property
    def recorders(self) -> dict[int, Recorder]:
        return {r.rank: r.recorder for r in self.ranks if isinstance(r.recorder, Recorder)}

    @property
    def hosts(self) -> tuple[str, ...]:
        named = [one.host for one in self.ranks] + [s.line.host for s in self.sightings]
        return tuple(dict.fromkeys(host for host in named if host))

    @property
    def members(self) -> frozenset[int]:
        """Every rank the job had, as far as known."""
        known = {one.rank for one in self.ranks}
        return frozenset(range(self.world_size)) | known if self.world_size else frozenset(known)


def quote(sighting: Sighting) -> Evidence:
    """The line as evidence."""
    line = sighting.line
    more = f" (and {sighting.count - 1} more like it)" if sighting.count > 1 else ""
    return Evidence(
        quote=line.text + more,
        source=line.source,
        line=line.number,
        rank=line.rank,
        host=line.host or None,
    )
