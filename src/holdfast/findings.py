"""What we say about a machine or a job: evidence, findings, verdicts, diagnoses, pages.

Frozen nouns and pure functions; nothing here reads or writes the world.
"""

from __future__ import annotations

import enum

import msgspec


class Place(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Line and column count from 1, as editors do; `file` is '' for the environment."""

    file: str
    line: int
    column: int = 1


class Status(enum.Enum):
    """How serious a finding is; the order is the order of concern."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    SKIPPED = "skipped"
    OK = "ok"

    @property
    def concern(self) -> int:
        """0 for ok, higher is worse; skipped is no concern, only a gap."""
        return {"error": 3, "warning": 2, "note": 1}.get(self.value, 0)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was really seen, and where."""

    quote: str
    source: str = ""
    line: int | None = None
    rank: int | None = None
    host: str | None = None
    setting: str = ""
    """the name of the setting that is quoted as NAME=value; '' where it is none"""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence about one fault on one machine."""

    code: str
    slug: str
    status: Status
    summary: str
    """what was seen"""
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""
    """what to do, as a command where there is one"""
    reason: str = ""
    """what it means and how sure we are; for `skipped`, why we could not look"""
    host: str = ""
    applies: bool = True
    """False when the question does not arise here ('one machine', 'no container')"""
    place: Place | None = None
    """where it is in a file; only lint has one"""

    @property
    def about(self) -> tuple[str, ...]:
        """The names of the settings that it is about."""
        return tuple(dict.fromkeys(one.setting for one in self.evidence if one.setting))


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Which ranks block which, and whether that is certain enough to act on."""

    code: str
    slug: str
    ranks: tuple[int, ...]
    """culprits only"""
    one_of: bool = False
    """not all of `ranks` did it: which of them is not known"""
    also: tuple[int, ...] = ()
    """ranks that others wait for as well, for a reason of their own"""
    victims: tuple[int, ...] = ()
    """ranks that wait for them, or exited as a result"""
    hosts: tuple[str, ...] = ()
    """nodes of the job that are the culprit as a whole: another start should do without them"""
    paths: tuple[tuple[str, str], ...] = ()
    """(from, to): where it is the way between two nodes, of which neither is accused"""
    reason: str
    """the sentence that log, screen, journal and test all show"""
    certain: bool
    """True acts at once; False is a notice, and patience decides"""
    likely: bool = False
    """that it is these ranks is likely, no more, also where patience has acted on it"""
    fatal: bool = False
    """no restart can help (the job was told to stop, the same fault comes back)"""
    fix: str = ""
    fix_after_end: str | None = None
    """where `fix` is a command for a process that runs: what to do once the job's processes have
    been ended, besides reading the evidence; None when `fix` holds then too"""
    evidence: tuple[Evidence, ...] = ()

    @property
    def names_a_culprit(self) -> bool:
        return bool(self.ranks or self.hosts or self.paths)

    @property
    def about_hosts(self) -> tuple[str, ...]:
        """The nodes it names: culprits, or both ends of a path; () where it is about ranks."""
        return self.hosts or tuple(sorted({name for path in self.paths for name in path}))


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """Who or what did it; `what` names it where it is not one rank: ranks, a setting, a file."""

    rank: int | None = None
    host: str = ""
    pid: int | None = None
    what: str = ""
    ranks: tuple[int, ...] = ()
    """where `what` names several ranks"""
    one_of: bool = False
    """not all of `ranks` did it: which of them is not known"""


class Grade(enum.Enum):
    """How sure a diagnosis is, in a word: what a person reads in place of the number."""

    CERTAIN = "certain"
    """this text, or these positions, can hardly mean anything else"""
    LIKELY = "likely"
    """the best explanation, though others fit as well"""
    POSSIBLE = "possible"
    """worth a look"""
    WEAK = "weak"
    """something points there, and not much"""

    @classmethod
    def of(cls, confidence: float) -> Grade:
        if confidence > CERTAIN_ABOVE:
            return cls.CERTAIN
        if confidence >= LIKELY_FROM:
            return cls.LIKELY
        return cls.POSSIBLE if confidence >= POSSIBLE_FROM else cls.WEAK


CERTAIN_ABOVE = 0.8
LIKELY_FROM = 0.5
POSSIBLE_FROM = 0.3


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What a fault makes of the wreckage of a job."""

    code: str
    slug: str
    confidence: float
    """0 to 1. Over 0.8 only where this text or these positions can hardly mean anything else."""
    culprit: Culprit | None
    """None when the evidence does not name one"""
    reason: str
    """the sentence: what happened, to whom, and how that follows from what was seen"""
    victims: tuple[int, ...] = ()
    also: tuple[int, ...] = ()
    """ranks that others waited for as well, for a reason of their own"""
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""
    next: str = ""
    """the command to type now"""
    ruled_out: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    order: int = 0
    """of its first sighting: of two causes on one rank the earlier one leads"""

    @property
    def grade(self) -> Grade:
        return Grade.of(self.confidence)


class RuleFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule of the user's own found in the logs of a job."""

    rule: str
    severity: str
    """'note', 'warning', 'error' or 'cause', as its user wrote"""
    what: str
    """'line', 'number', 'missing' or 'stopped'"""
    ranks: tuple[int, ...] = ()
    reason: str
    """what it means, in the user's words, and what was seen"""
    count: int = 0
    """of lines"""
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """The story of a fault, written once: `explain`, the docs and the JSON all show this."""

    code: str
    slug: str
    title: str
    see: str
    why: str
    sure: str
    fix: str
    sources: tuple[str, ...]
    faces: tuple[str, ...] = ()
    limits: str = ""
    """what holdfast does not see of it"""
    related: tuple[str, ...] = ()
    """slugs of faults that are easily confused with it"""
    example: str = ""
    """what holdfast says when it meets it, where that was asked for (tools/write_examples.py)"""
