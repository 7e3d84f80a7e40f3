"""Sources -> findings: in order, each once, without those that a comment ignores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from holdfast import catalogue
from holdfast.analysis.source.source import Launch, LintingMachine, Source
from holdfast.fault import Fault
from holdfast.findings import Finding
from holdfast.lint.ignore import IgnoreComments
from holdfast.lint.lines import lines as lines_of
from holdfast.lint.read import FileSources
from holdfast.redaction import redact


class LintFinding(NamedTuple):
    finding: Finding
    excerpt: str
    """the line it is on, without what looks like a secret"""


def judge(
    piece: FileSources,
    faults: Sequence[Fault],
    ignored: IgnoreComments,
    *,
    here: LintingMachine,
    started_by: tuple[Launch, ...] = (),
) -> list[LintFinding]:
    found: list[Finding] = []
    for source in piece.sources:
        known = msgspec.structs.replace(source, here=here, started_by=started_by)
        spoken = catalogue.lint(known, faults)
        found += [finding for finding in spoken if not ignored.hides(finding, source)]
        if source.program is not None:
            source.program.forget()
    if not found:
        return []
    excerpts = _Excerpts(lines_of(piece.text.text))
    return [LintFinding(_discreet(finding), excerpts.of(finding)) for finding in in_order(found)]


def _discreet(finding: Finding) -> Finding:
    """Without the password of an address that it names: logs of a CI are read by many."""
    evidence = tuple(
        msgspec.structs.replace(one, quote=redact(one.quote)) for one in finding.evidence
    )
    return msgspec.structs.replace(
        finding,
        summary=redact(finding.summary),
        reason=redact(finding.reason),
        fix=redact(finding.fix),
        evidence=evidence,
    )


def in_order(found: Iterable[Finding]) -> list[Finding]:
    """By place; of two findings of one fault at one place the more serious one stays."""
    best: dict[tuple[object, ...], Finding] = {}
    for finding in found:
        key = (finding.slug, finding.place)
        first = best.setdefault(key, finding)
        if first is not finding:
            best[key] = _merged(first, finding)
    return sorted(best.values(), key=_position)


def _merged(one: Finding, other: Finding) -> Finding:
    graver, lesser = (one, other) if one.status.concern >= other.status.concern else (other, one)
    more = tuple(e for e in lesser.evidence if e not in graver.evidence)
    return msgspec.structs.replace(graver, evidence=(*graver.evidence, *more))


def _position(finding: Finding) -> tuple[str, int, int, str]:
    place = finding.place
    return (place.file, place.line, place.column, finding.code) if place else ("", 0, 0, "")


class _Excerpts:
    """The lines with findings. Each is searched for secrets once: a file may be a single line
    of many megabytes with thousands of findings on it."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._shown: dict[int, str] = {}

    def of(self, finding: Finding) -> str:
        place = finding.place
        if place is None or not 0 < place.line <= len(self._lines):
            return ""
        if place.line not in self._shown:
            self._shown[place.line] = redact(self._lines[place.line - 1].rstrip())
        return self._shown[place.line]


def of_environment(
    source: Source, faults: Sequence[Fault], here: LintingMachine
) -> list[LintFinding]:
    """Of `--env`: the line of a setting is its number, the excerpt the setting itself."""
    excerpts = _Excerpts([f"{setting.name}={setting.value}" for setting in source.settings])
    found = catalogue.lint(msgspec.structs.replace(source, here=here), faults)
    return [LintFinding(finding, excerpts.of(finding)) for finding in in_order(found)]
