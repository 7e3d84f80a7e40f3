"""What we say about a machine or a job: evidence, findings, faults and their pages.

Frozen nouns and pure functions; nothing here reads or writes the world.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from holdfast.facts import CouldNotLook, MachineFacts
from holdfast.remains.nouns import Sighting, Wreckage
from holdfast.remains.signature import Role, Signature
from holdfast.signals import Scene


class Status(enum.Enum):
    """How a finding stands; the order is the order of concern."""

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


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds whom up, and whether that is certain enough to act on."""

    code: str
    slug: str
    ranks: tuple[int, ...]
    """culprits only"""
    victims: tuple[int, ...] = ()
    """ranks that wait for them or fell with them"""
    reason: str
    """the sentence that log, screen, journal and test all show"""
    certain: bool
    """True acts at once; False is a notice, and patience decides"""
    fatal: bool = False
    """no restart can help (the job was told to stop, the same fault comes back)"""
    fix: str = ""
    evidence: tuple[Evidence, ...] = ()


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """Who or what did it; `what` names it where it is no rank: a setting, a link, a file."""

    rank: int | None = None
    host: str = ""
    pid: int | None = None
    what: str = ""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What a fault makes of the wreckage of a job."""

    code: str
    slug: str
    confidence: float
    """0 to 1. Over 0.8 only where this text or these positions can hardly mean anything else."""
    culprit: Culprit | None
    """None when nobody can be named honestly"""
    reason: str
    """the sentence: what happened, to whom, and how that follows from what was seen"""
    victims: tuple[int, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    fix: str = ""
    next: str = ""
    """the command to type now"""
    ruled_out: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    order: int = 0
    """of its first sighting: of two causes on one rank the earlier one leads"""


Foresight = Callable[[MachineFacts], Finding | Sequence[Finding]]
Perception = Callable[[Scene], Verdict | None]
Recognition = Callable[[Wreckage], Diagnosis | None]

SHOWN = 5
"""quoted lines of evidence are enough; the count tells of the rest"""

FACES = {
    "foresee": "C",  # check: facts -> finding
    "lint": "L",  # source -> findings
    "notice": "W",  # signals -> verdict
    "recognise": "E",  # wreckage -> diagnosis
    "rehearse": "D",  # -> an injection for drill
}
"""Every face a fault can have, with its letter in the catalogue's table."""


class Fault:
    """One thing that goes wrong, with a stable code and slug, and what we can do about it.

    A file under `faults/` makes one, decorates its faces with it, and builds findings
    from it, so that code and slug are written once.
    """

    def __init__(self, *, code: str, slug: str) -> None:
        if not re.fullmatch(r"HOLD[1-9]\d\d", code):
            raise ValueError(f"fault code {code!r} is not HOLD and three digits")
        if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", slug):
            raise ValueError(f"fault slug {slug!r} is not words-with-dashes")
        self.code = code
        self.slug = slug
        self.foresights: list[Foresight] = []
        self.perceptions: list[Perception] = []
        self.recognitions: list[Recognition] = []
        self.signatures: list[Signature] = []

    def foresee(self, face: Foresight) -> Foresight:
        """Register a pure function from the facts of a machine to findings."""
        self.foresights.append(face)
        return face

    def notice(self, face: Perception) -> Perception:
        """Register a pure function from the scene of a running job to a verdict, or None."""
        self.perceptions.append(face)
        return face

    def recognise(self, face: Recognition) -> Recognition:
        """Register a pure function from the wreckage of a job to a diagnosis, or None."""
        self.recognitions.append(face)
        return face

    def wording(
        self,
        name: str,
        pattern: str,
        *,
        anchors: str | tuple[str, ...],
        example: str,
        role: Role = Role.ROOT,
    ) -> Signature:
        """Register a wording that logs are searched for; see remains/signature.py."""
        signature = Signature(
            name=f"{self.slug}: {name}",
            pattern=pattern,
            anchors=(anchors,) if isinstance(anchors, str) else anchors,
            example=example,
            role=role,
            slug=self.slug,
        )
        self.signatures.append(signature)
        return signature

    @property
    def faces(self) -> frozenset[str]:
        made = {
            "foresee": self.foresights,
            "notice": self.perceptions,
            "recognise": self.recognitions,
        }
        return frozenset(name for name, functions in made.items() if functions)

    def look_at(self, facts: MachineFacts) -> list[Finding]:
        """Every finding of this fault on this machine; never empty, never raises."""
        found: list[Finding] = []
        for face in self.foresights:
            try:
                answer = face(facts)
            except CouldNotLook as gap:
                answer = self.skipped(gap.why)
            except Exception as bug:  # noqa: BLE001 - one broken check must not hide the others
                answer = self.skipped(
                    f"this check itself failed, which is a bug in holdfast: "
                    f"{type(bug).__name__}: {bug}"
                )
            found.extend([answer] if isinstance(answer, Finding) else answer)
        # Two faces that miss the same fact would say the same thing twice.
        return [msgspec.structs.replace(f, host=facts.host) for f in dict.fromkeys(found)]

    def verdict(
        self,
        reason: str,
        *,
        ranks: Iterable[int],
        certain: bool,
        victims: Iterable[int] = (),
        fatal: bool = False,
        fix: str = "",
        evidence: Iterable[Evidence] = (),
    ) -> Verdict:
        """This is what holds the job up."""
        return Verdict(
            code=self.code,
            slug=self.slug,
            ranks=tuple(sorted(set(ranks))),
            victims=tuple(sorted(set(victims))),
            reason=reason,
            certain=certain,
            fatal=fatal,
            fix=fix,
            evidence=tuple(evidence),
        )

    def diagnosis(
        self,
        reason: str,
        *,
        confidence: float,
        seen: Iterable[Sighting] = (),
        culprit: Culprit | None = None,
        victims: Iterable[int] = (),
        fix: str,
        next: str = "",
        evidence: Iterable[Evidence] = (),
        ruled_out: Iterable[str] = (),
        unknown: Iterable[str] = (),
    ) -> Diagnosis:
        """This is what broke the job. Without a culprit the writer of the first line seen is it;
        give `Culprit()` fields, or `what`, where that would blame a witness."""
        lines = tuple(seen)
        if culprit is None and lines:
            line = lines[0].line
            culprit = Culprit(rank=line.rank, host=line.host, pid=line.pid)
        return Diagnosis(
            code=self.code,
            slug=self.slug,
            confidence=round(min(max(confidence, 0.0), 1.0), 2),
            culprit=culprit,
            reason=reason,
            victims=tuple(sorted(set(victims))),
            evidence=(*evidence, *map(quote, lines))[:SHOWN],
            fix=fix,
            next=next,
            ruled_out=tuple(ruled_out),
            unknown=tuple(unknown),
            order=min((one.order for one in lines), default=0),
        )

    # --- building findings: the words come from the fault's file, the identity from here -------

    def error(
        self, summary: str, *, reason: str, fix: str, evidence: Iterable[Evidence] = ()
    ) -> Finding:
        """This will break the job."""
        return self._finding(Status.ERROR, summary, reason, fix, evidence)

    def warning(
        self, summary: str, *, reason: str, fix: str, evidence: Iterable[Evidence] = ()
    ) -> Finding:
        """This may break the job, or makes it slow or blind."""
        return self._finding(Status.WARNING, summary, reason, fix, evidence)

    def note(
        self, summary: str, *, reason: str, fix: str = "", evidence: Iterable[Evidence] = ()
    ) -> Finding:
        """Worth knowing; nothing has to be done for this job."""
        return self._finding(Status.NOTE, summary, reason, fix, evidence)

    def ok(self, summary: str, *, evidence: Iterable[Evidence] = ()) -> Finding:
        """Looked, and it is fine; the summary says what was looked at."""
        return self._finding(Status.OK, summary, "", "", evidence)

    def skipped(self, why: str) -> Finding:
        """Could not look."""
        return self._finding(Status.SKIPPED, "not looked at", why, "", ())

    def does_not_apply(self, why: str) -> Finding:
        """The question does not arise here."""
        return msgspec.structs.replace(
            self._finding(Status.SKIPPED, "does not apply", why, "", ()), applies=False
        )

    def _finding(
        self, status: Status, summary: str, reason: str, fix: str, evidence: Iterable[Evidence]
    ) -> Finding:
        return Finding(
            code=self.code,
            slug=self.slug,
            status=status,
            summary=summary,
            reason=reason,
            fix=fix,
            evidence=tuple(evidence),
        )


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
