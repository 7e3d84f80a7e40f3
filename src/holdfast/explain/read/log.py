"""One log -> what is found in it: sightings, exceptions, first and last lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.analysis.logs import broken_scripts, exception_origin
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import all_patterns
from holdfast.analysis.logs.wreckage import LoggedException, LogLine, Sighting
from holdfast.analysis.scene.scene import LastWords
from holdfast.analysis.scene.secondary_errors import consequence
from holdfast.explain.read import line_prefix, records, tracebacks
from holdfast.explain.read.collected import Collected
from holdfast.explain.read.file_names import FileNameHints
from holdfast.explain.read.inputs import Opened
from holdfast.explain.read.line_prefix import Grammar, Head
from holdfast.explain.read.records import RecordLine
from holdfast.explain.read.scan import FOLLOWING, Hit, LogTail, Scanner
from holdfast.explain.read.survival import Survival
from holdfast.system.rule_process import PatternHit

NEWEST_FIRST = (
    "its records run from the newest to the oldest, so causes and consequences are mixed up: print "
    "them oldest first (gcloud: --order=asc)"
)
SAMPLE = 200
"""lines that decide what kind of log it is"""
LONGEST = 1_000
"""characters of a line that are kept to be quoted"""
_WRAPPERS = (
    "ChildFailedError",
    "CalledProcessError",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SignalException",
)
"""exceptions by which a launcher reports the end of another process: they are Exits"""


class _Quoted:
    """Whose words a launcher repeats: Ray Train's and Composer's name the rank above them."""

    def __init__(self) -> None:
        self._rank: int | None = None
        self._by: tuple[object, ...] = ()

    def named(self, head: Head, line: LogLine) -> LogLine:
        by = (head.host, head.pid) if head.pid is not None else (head.grammar,)
        if section := all_patterns.SECTION.regex.search(head.text):
            named = section["rank"] or section["begin"]
            self._rank, self._by = int(named) if named else None, by
        elif self._rank is not None and line.rank is None and by == self._by:
            return msgspec.structs.replace(line, rank=self._rank, pid=None)
        return line


class _Record:
    """Lines without a prefix, below the first line of a logger's record: its writer's too."""

    def __init__(self) -> None:
        self._first: LogLine | None = None
        self._end = (0, 0)

    def begin(self, first: LogLine, end: tuple[int, int]) -> None:
        self._first, self._end = first, end

    def named(self, head: Head, line: LogLine, hit: Hit | RecordLine) -> LogLine:
        first = self._first
        if first is None or head.grammar or hit.place() > self._end:
            return line
        return msgspec.structs.replace(
            line, rank=first.rank, local_rank=first.local_rank, host=first.host, pid=first.pid
        )


class LogReader:
    """Reads one source after another into the findings."""

    def __init__(self, scanner: Scanner, collected: Collected) -> None:
        self._scanner = scanner
        self._collected = collected

    def read(self, opened: Opened, named: FileNameHints, peek: str) -> str:
        """Its kind: 'log' or 'kernel'."""
        lines = peek.splitlines()
        wrapped = records.in_use(lines)
        if wrapped:
            lines = [records.texts(line)[0] for line in lines]
        grammar = line_prefix.grammar_of(lines)
        tail = LogTail()
        ended: dict[object, tuple[int, int]] = {}
        """writer -> the place up to which its exception has been read already"""
        survival = Survival(
            lambda number, raw: _line(line_prefix.head(raw, grammar), named, opened.name, number)
        )
        quoted, record = _Quoted(), _Record()
        rules = self._collected.rules
        hits = self._scanner.lines(rules.listening(opened), tail=tail, in_json=wrapped)
        for hit in records.unwrapped(hits) if wrapped else hits:
            head = line_prefix.head(hit.text, grammar)
            line = quoted.named(head, _line(head, named, opened.name, hit.number))
            line = record.named(head, line, hit)
            slugs = self._see(head, hit, line)
            writer = (head.rank, head.local_rank, head.host, head.pid)
            survival.pass_by(hit)
            if all_patterns.IGNORED.regex.search(head.text):
                survival.announce(writer, hit.number)
            # Reading an exception looks at sixty lines: not for those that are not kept.
            if hit.place() <= ended.get(writer, (0, 0)) or self._collected.has_enough_raised:
                continue
            told = _exception(head, hit, grammar)
            if told is not None:
                ended[writer] = hit.place(told.lines)
                if told.bare:
                    record.begin(line, hit.place(told.lines))
                    ended[None, None, "", None] = hit.place(told.lines)
                index = self._catch(told, line, hit, slugs)
                if index is not None:
                    survival.catch(index, hit, line, writer, ends=told.ends, lines=told.lines)
        times = (line_prefix.head(line, grammar).at for line in lines)
        if wrapped and not opened.problem and _runs_backwards(times):
            opened.problem = NEWEST_FIRST
        last = [(n, records.texts(text)[-1] if wrapped else text) for n, text in tail.lines()]
        self._collected.survived += survival.survived(last)
        self._remember_ends(lines, last, named, opened.name, grammar)
        if rules.rules:
            self._match_rules(named, opened.name, grammar, wrapped=wrapped)
            ends = (*lines[:SAMPLE], *(text for _, text in last[-SAMPLE:]))
            rules.spans([line_prefix.head(line, grammar).at for line in ends])
        return "kernel" if _is_kernel(lines[:SAMPLE], grammar) else "log"

    def _match_rules(
        self, named: FileNameHints, source: str, grammar: Grammar, *, wrapped: bool
    ) -> None:
        for found in self._collected.rules.hits():
            if head := _head_of_match(found, grammar, wrapped=wrapped):
                self._collected.rules.saw(found, _line(head, named, source, found.number))

    def _see(self, head: Head, hit: Hit | RecordLine, line: LogLine) -> tuple[str, ...]:
        """Record every pattern this line matches; the slugs of faults it may be the cause of."""
        slugs = []
        for pattern, fields in self._scanner.match(head.text, raw=hit.text):
            self._collected.order += 1
            self._collected.see(
                Sighting(
                    pattern=pattern.name,
                    slug=pattern.slug,
                    role=pattern.role,
                    line=line,
                    fields=fields,
                    order=self._collected.order,
                )
            )
            if pattern.role is Role.ROOT and pattern.slug:
                slugs.append(pattern.slug)
        return tuple(slugs)

    def _catch(
        self,
        told: tracebacks.ParsedException,
        line: LogLine,
        hit: Hit | RecordLine,
        slugs: tuple[str, ...],
    ) -> int | None:
        """Its place among all that were caught; None where it is not one of its own."""
        if told.kind.endswith(_WRAPPERS):
            return None
        launcher = exception_origin.is_launcher(told.frames)
        following = hit.after(told.lines) if told.lines else ()
        words = LastWords(kind=told.kind, text=told.text, where="", at=line.at or 0.0)
        text = f"{told.kind}: {told.text.partition(chr(10))[0]}".rstrip(": ")
        self._collected.order += 1
        if launcher:  # a file's name, or a prefix, may suggest a rank
            line = msgspec.structs.replace(line, rank=None, local_rank=None)
        return self._collected.catch(
            LoggedException(
                kind=told.kind,
                text=told.text,
                frames=told.frames,
                line=msgspec.structs.replace(
                    line, text=text[:LONGEST], number=hit.place(told.ends)[0]
                ),
                consequence=consequence(words)
                or exception_origin.network_consequence(told.kind, told.text, launcher=launcher),
                launcher=launcher,
                root_slugs=tuple(
                    dict.fromkeys((*slugs, *self._roots(following[max(told.ends - 1, 0) :])))
                ),
                order=self._collected.order,
            )
        )

    def _roots(self, lines: Sequence[str]) -> Iterable[str]:
        for line in lines:
            for pattern, _ in self._scanner.match(line):
                if pattern.role is Role.ROOT and pattern.slug:
                    yield pattern.slug

    def _remember_ends(
        self,
        first: Sequence[str],
        last: Sequence[tuple[int, str]],
        named: FileNameHints,
        source: str,
        grammar: Grammar,
    ) -> None:
        """The first and last line of every writer that can be told from the others."""
        spans: dict[tuple[object, ...], tuple[LogLine, LogLine]] = {}
        for number, raw in (*enumerate(first[:2000], start=1), *last):
            head = line_prefix.head(raw, grammar)
            line = _line(head, named, source, number)
            if line.rank is None and line.local_rank is None and line.pid is None:
                continue
            known = line.rank is not None
            key = (line.rank,) if known else (line.local_rank, line.host, line.pid)
            spans[key] = (spans[key][0] if key in spans else line, line)
        self._collected.spans.extend(spans.values())


def _runs_backwards(times: Iterable[float | None]) -> bool:
    known = [at for at in times if at is not None][:SAMPLE]
    later = sum(one < other for one, other in itertools.pairwise(known))
    earlier = sum(one > other for one, other in itertools.pairwise(known))
    return earlier > 3 and earlier > 10 * later


def _is_kernel(lines: Sequence[str], grammar: Grammar) -> bool:
    told = [line_prefix.head(line, grammar).grammar.split() for line in lines if line.strip()]
    kernel = [one for one in told if one[:1] in (["uptime"], ["dmesg"]) or "tag" in one]
    syslog = [line for line in lines if " kernel: " in line[:60]]
    return len(kernel) + len(syslog) > len(told) / 2


def _exception(
    head: Head, hit: Hit | RecordLine, grammar: Grammar
) -> tracebacks.ParsedException | None:
    text = head.text
    if "Traceback (most recent call last)" in text:
        return tracebacks.traceback(head, hit.after(FOLLOWING), grammar)
    if "terminate called " in text:
        return tracebacks.thrown(head, hit.after(FOLLOWING), grammar)
    if all_patterns.ERROR.regex.search(text):
        before = hit.before(5) if broken_scripts.ERROR.search(text) else ()
        return tracebacks.printed(head, hit.after(FOLLOWING), grammar, before)
    return None


def _head_of_match(found: PatternHit, grammar: Grammar, *, wrapped: bool) -> Head | None:
    """The line that a rule matched. A match at what may only look like the end of a prefix counts
    where the text of the line begins there."""
    texts = records.texts(found.line) if wrapped else [found.line]
    heads = [line_prefix.head(text, grammar) for text in texts]
    if not found.start:
        return heads[0]
    rest = found.line[found.start :]
    return next((head for head in heads if _begins_alike(head.text, rest)), None)


def _begins_alike(text: str, other: str) -> bool:
    """As far as a record of JSON leaves it."""
    count = min(len(text), len(other), 12)
    return bool(count) and text[: count // 2 + 1] == other[: count // 2 + 1]


def _line(head: Head, named: FileNameHints, source: str, number: int) -> LogLine:
    """What the line says of its writer; where it says nothing, what the file's name does."""
    return LogLine(
        text=head.text[:LONGEST],
        source=source,
        number=number,
        rank=head.rank if head.rank is not None else named.rank,
        local_rank=head.local_rank if head.local_rank is not None else named.local_rank,
        host=head.host or named.host,
        pid=head.pid if head.pid is not None else named.pid,
        at=head.at,
    )
