"""A fault: one thing that goes wrong, with a stable name, and what we can do about it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import msgspec

from holdfast.analysis.logs.pattern import Role, Signature
from holdfast.analysis.logs.wreckage import Sighting, Wreckage, quote
from holdfast.analysis.machine import CouldNotLook, MachineFacts
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.source.source import Source
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Place, Status, Verdict

Foresight = Callable[[MachineFacts], Finding | Sequence[Finding]]
Perception = Callable[[Scene], Verdict | None]
Recognition = Callable[[Wreckage], Diagnosis | None]
Inspection = Callable[[Source], Iterable[Finding]]

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
        self.inspections: list[Inspection] = []
        self.perceptions: list[Perception] = []
        self.recognitions: list[Recognition] = []
        self.signatures: list[Signature] = []

    def foresee(self, face: Foresight) -> Foresight:
        """Register a pure function from the facts of a machine to findings."""
        self.foresights.append(face)
        return face

    def lint(self, face: Inspection) -> Inspection:
        """Register a pure function from a piece of source to findings, each with its place."""
        self.inspections.append(face)
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
        """Register a wording that logs are searched for; see analysis/logs/pattern.py."""
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
            "lint": self.inspections,
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

    def inspect(self, source: Source) -> list[Finding]:
        """Every finding of this fault in this piece of source; never raises."""
        found = [finding for face in self.inspections for finding in self._ask(face, source)]
        return list(dict.fromkeys(found))

    def _ask(self, face: Inspection, source: Source) -> list[Finding]:
        try:
            return list(face(source))
        except Exception as bug:  # noqa: BLE001 - one broken rule must not hide the others
            why = f"this rule itself failed, a bug in holdfast: {type(bug).__name__}: {bug}"
            at = Place(file=source.file, line=1)
            return [msgspec.structs.replace(self.skipped(why), place=at)]

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

    def diagnosis(  # noqa: PLR0913 - each one is said by name
        self,
        reason: str,
        *,
        confidence: float,
        seen: Iterable[Sighting] = (),
        culprit: Culprit | None = None,
        victims: Iterable[int] = (),
        fix: str,
        next: str = "",  # noqa: A002 - its name in the JSON document
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
        self,
        summary: str,
        *,
        reason: str,
        fix: str,
        evidence: Iterable[Evidence] = (),
        at: Place | None = None,
    ) -> Finding:
        """This will break the job."""
        return self._finding(Status.ERROR, summary, reason, fix, evidence, at)

    def warning(
        self,
        summary: str,
        *,
        reason: str,
        fix: str,
        evidence: Iterable[Evidence] = (),
        at: Place | None = None,
    ) -> Finding:
        """This may break the job, or makes it slow or blind."""
        return self._finding(Status.WARNING, summary, reason, fix, evidence, at)

    def note(
        self,
        summary: str,
        *,
        reason: str,
        fix: str = "",
        evidence: Iterable[Evidence] = (),
        at: Place | None = None,
    ) -> Finding:
        """Worth knowing; nothing has to be done for this job."""
        return self._finding(Status.NOTE, summary, reason, fix, evidence, at)

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
        self,
        status: Status,
        summary: str,
        reason: str,
        fix: str,
        evidence: Iterable[Evidence],
        at: Place | None = None,
    ) -> Finding:
        return Finding(
            code=self.code,
            slug=self.slug,
            status=status,
            summary=summary,
            reason=reason,
            fix=fix,
            evidence=tuple(evidence),
            place=at,
        )
