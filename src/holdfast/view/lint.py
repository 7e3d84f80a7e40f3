"""What lint found, for a person, and for GitHub's annotations."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.findings import Evidence, Finding, Status
from holdfast.view.text import COLOURS, PLAIN, harmless

WIDEST = 110
"""columns of an excerpt"""
BOLD, BLUE = "\033[1m", "\033[1;34m"
_WORD = re.compile(
    r"'[^']*'|\"[^\"]*\"|[A-Za-z_][\w.]*(?:=[^\s,;)`|]+)?|\d[\w.]*|-{1,2}[\w-]+(?:=[^\s,;)`|]+)?|\S"
)

_BLANK = re.compile(r"\s*")


class Shown(NamedTuple):
    finding: Finding
    excerpt: str


def report(items: Sequence[Shown], *, colour: bool) -> str:
    """A paragraph each, in the order of the files; equal notes share that of the first."""
    alike: dict[object, list[Shown]] = {}
    for item in items:
        alike.setdefault(_same_note(item.finding), []).append(item)
    return "\n\n".join(
        paragraph(first, colour=colour, also=[place_of(one.finding) for one in others])
        for first, *others in alike.values()
    )


def _same_note(finding: Finding) -> object:
    """A note that says the same of many files; anything graver is read one by one."""
    if finding.status is not Status.NOTE or finding.evidence:
        return id(finding)
    return finding.code, finding.summary, finding.reason, finding.fix


def paragraph(item: Shown, *, colour: bool, also: Sequence[str] = ()) -> str:
    """Place and sentence, the line itself with a mark under it, what it means, what to do."""
    finding = item.finding
    status = _paint(finding.status.value, COLOURS[finding.status], colour=colour)
    where = _paint(place_of(finding), BOLD, colour=colour)
    if finding.status is Status.SKIPPED:
        return f"{where}: {finding.code} [{finding.slug}] {status}: {harmless(finding.reason)}"
    head = f"{where}: {finding.code} [{finding.slug}] {status}: {harmless(finding.summary)}"
    number = str(finding.place.line) if finding.place and finding.place.file else ""
    margin = " " * max(len(number), 1)
    bar = _paint("|", BLUE, colour=colour)
    lines = [head]
    if item.excerpt:
        shown, mark = excerpt(item.excerpt, finding.place.column if finding.place else 1)
        shade = COLOURS[finding.status]
        lines += [
            f"  {margin} {bar}",
            f"  {_paint(number or margin, BLUE, colour=colour)} {bar} {harmless(shown)}",
            f"  {margin} {bar} {_paint(mark, shade, colour=colour)}".rstrip(),
        ]
    told = [harmless(finding.reason)] if finding.reason else []
    told += [f"seen: {harmless(e.quote)}{_origin(e, finding)}" for e in finding.evidence]
    told += [f"help: {harmless(finding.fix)}"] if finding.fix else []
    told += _also_at(also, indent=f"  {margin}   ")
    return "\n".join([*lines, *(f"  {margin} = {one}" for one in told)])


def _also_at(places: Sequence[str], *, indent: str) -> list[str]:
    words = f"also at: {', '.join(places)}"
    wrapped = textwrap.wrap(words, WIDEST, break_long_words=False, break_on_hyphens=False)
    return [f"\n{indent}".join(wrapped)] if places else []


def place_of(finding: Finding) -> str:
    """'train.py:12:5', or 'environment'."""
    place = finding.place
    if place is None or not place.file:
        return "environment"
    return f"{harmless(place.file)}:{place.line}:{place.column}"


def _origin(evidence: Evidence, finding: Finding) -> str:
    """Only its line where it is in the same file."""
    if not evidence.source:
        return ""
    if finding.place and evidence.source == finding.place.file and evidence.line:
        return f" (line {evidence.line})"
    return f" ({harmless(evidence.source)}{f':{evidence.line}' if evidence.line else ''})"


def _paint(text: str, shade: str, *, colour: bool) -> str:
    return f"{shade}{text}{PLAIN}" if colour and text.strip() else text


def excerpt(line: str, column: int) -> tuple[str, str]:
    """The part of a line around a column, and the mark under the word that begins there."""
    at = min(max(column - 1, 0), len(line))
    word = _WORD.match(line, at)
    length = len(word[0]) if word else 1
    blank = _BLANK.match(line)  # no copy: the line may be a whole file
    start, before = (min(blank.end() if blank else 0, at), "")
    if at + length - start > WIDEST:
        start, before = max(at - WIDEST // 3, start), "…"
    end = start + WIDEST
    after = "…" if len(line.rstrip()) > end else ""
    shown = before + line[start:end].rstrip().replace("\t", " ") + after
    length = min(length, max(end - at, 1))
    return shown, " " * (at - start + len(before)) + "^" * length


def summary(
    counts: dict[str, int],
    *,
    files: int,
    looked_at: int,
    unread: int,
    in_part: int = 0,
    environment: bool = False,
) -> str:
    """'Found 3 errors, 2 warnings, 1 note in 2 files (14 looked at, 1 not readable).'

    `environment`: it is one of the places; where nothing was found, it was looked at."""
    missed = [f"{unread} not readable" * bool(unread), f"{in_part} only in part" * bool(in_part)]
    gaps = ", ".join(filter(None, missed))
    looked = ", ".join(filter(None, [f"{looked_at} looked at" * bool(looked_at), gaps]))
    parts = [
        f"{counts[name]} {name}{'s' if counts[name] > 1 else ''}"
        for name in ("error", "warning", "note")
        if counts[name]
    ]
    if not parts:
        where = _places(looked_at, environment=environment)
        # What was not seen may hold anything: then it is not 'clear'.
        return f"Nothing found in {where} ({gaps})." if gaps else f"All clear: nothing in {where}."
    found = f"Found {', '.join(parts)} in {_places(files, environment=environment)}"
    return f"{found} ({looked})." if looked else f"{found}."


def _places(count: int, *, environment: bool) -> str:
    files = "1 file" if count == 1 else f"{count} files"
    if not environment:
        return files
    return f"{files} and the environment" if count else "the environment"


# --- GitHub -------------------------------------------------------------------------------------

ANNOTATIONS = {Status.ERROR: "error", Status.WARNING: "warning", Status.NOTE: "notice"}


def github(findings: Sequence[Finding]) -> str:
    """Workflow commands: shown beside the lines of a pull request."""
    return "\n".join(_annotation(one) for one in findings if one.status in ANNOTATIONS)


def refused(findings: Sequence[Finding]) -> list[str]:
    """A line for each script that could not be looked at."""
    skipped = [one for one in findings if one.status is Status.SKIPPED]
    return [f"{place_of(one)}: not linted: {harmless(one.reason)}" for one in skipped]


def _annotation(finding: Finding) -> str:
    place = finding.place
    properties = {"title": f"{finding.code} {finding.slug}"}
    if place is not None and place.file:
        where = {"file": place.file, "line": str(place.line), "col": str(place.column)}
        properties = where | properties
    listed = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    told = [finding.summary, finding.reason, f"help: {finding.fix}" if finding.fix else ""]
    lines = [line for part in told if part for line in part.split("\n")]
    message = "\n".join(harmless(line) for line in lines)
    return f"::{ANNOTATIONS[finding.status]} {listed}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
