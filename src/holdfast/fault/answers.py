"""What a fault says: its words come from its own file, its code and slug from here."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.analysis.logs.wreckage import Sighting, quote
from holdfast.analysis.source.source_problem import SourceProblem
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Place, Status, Verdict

SHOWN = 5
"""lines of evidence that are quoted; the rest are counted"""


class Answers:
    """Builds verdicts, diagnoses and findings under the name of one fault."""

    code: str
    slug: str

    def verdict(  # noqa: PLR0913 - each one is said by name
        self,
        reason: str,
        *,
        ranks: Iterable[int],
        one_of: bool = False,
        certain: bool,
        victims: Iterable[int] = (),
        hosts: Iterable[str] = (),
        paths: Iterable[tuple[str, str]] = (),
        fatal: bool = False,
        fix: str = "",
        fix_after_end: str | None = None,
        evidence: Iterable[Evidence] = (),
    ) -> Verdict:
        """This is what stops the job."""
        return Verdict(
            code=self.code,
            slug=self.slug,
            ranks=tuple(sorted(set(ranks))),
            one_of=one_of,
            victims=tuple(sorted(set(victims))),
            hosts=tuple(sorted(set(hosts))),
            paths=tuple(sorted(set(paths))),
            reason=reason,
            certain=certain,
            fatal=fatal,
            fix=fix,
            fix_after_end=fix_after_end,
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
        """This is what broke the job. Without a culprit the first known writer of the lines seen is
        it; give `Culprit()` fields, or `what`, where that would blame a witness."""
        lines = tuple(seen)
        if culprit is None and lines:
            line = ([one for one in lines if one.rank is not None] or lines)[0].line
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

    def error(
        self,
        summary: str,
        *,
        reason: str,
        fix: str,
        evidence: Iterable[Evidence] = (),
        at: Place | None = None,
        host: str = "",
    ) -> Finding:
        """This will break the job."""
        return self._finding(Status.ERROR, summary, reason, fix, evidence, at, host)

    def warning(
        self,
        summary: str,
        *,
        reason: str,
        fix: str,
        evidence: Iterable[Evidence] = (),
        at: Place | None = None,
        host: str = "",
    ) -> Finding:
        """This may break the job, or makes it slow or blind."""
        return self._finding(Status.WARNING, summary, reason, fix, evidence, at, host)

    def note(
        self,
        summary: str,
        *,
        reason: str,
        fix: str = "",
        evidence: Iterable[Evidence] = (),
        at: Place | None = None,
        host: str = "",
    ) -> Finding:
        """Worth knowing; nothing has to be done for this job."""
        return self._finding(Status.NOTE, summary, reason, fix, evidence, at, host)

    def from_problem(self, problem: SourceProblem) -> Finding:
        """What a question of analysis/source found, under the name of this fault."""
        status = Status(problem.status)
        place = problem.place
        return self._finding(status, problem.summary, problem.reason, problem.fix, (), place)

    def ok(self, summary: str, *, evidence: Iterable[Evidence] = ()) -> Finding:
        """Looked, and it is fine; the summary says what was looked at."""
        return self._finding(Status.OK, summary, "", "", evidence)

    def skipped(self, why: str, *, host: str = "") -> Finding:
        """Could not look."""
        return self._finding(Status.SKIPPED, "not looked at", why, "", (), host=host)

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
        host: str = "",
    ) -> Finding:
        return Finding(
            code=self.code,
            slug=self.slug,
            status=status,
            summary=summary,
            reason=reason,
            fix=fix,
            evidence=tuple(evidence),
            host=host,
            place=at,
        )
