"""Paths -> Wreckage. The kind of a source is decided by its content, not by its name."""

from __future__ import annotations

import functools
import io
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast import catalogue
from holdfast.analysis.collectives import own_numbers
from holdfast.analysis.logs.wreckage import InputSource, LostRun, Wreckage
from holdfast.analysis.machine import Unread
from holdfast.analysis.ras import reading as ras
from holdfast.analysis.rules.rule import NO_RULES, RuleSet
from holdfast.analysis.scene.scene import LastWords, Recorder
from holdfast.explain.assemble import assemble
from holdfast.explain.read import (
    documents,
    dumps,
    file_names,
    inputs,
    nccl_tests,
    recorder_table,
    rewrap,
    run_folder,
    stacks,
    tracebacks,
)
from holdfast.explain.read.byte_streams import Reader
from holdfast.explain.read.collected import Collected
from holdfast.explain.read.file_names import FileNameHints
from holdfast.explain.read.inputs import Opened
from holdfast.explain.read.log import LogReader
from holdfast.explain.read.run_folder import RunFolder
from holdfast.explain.read.run_journal import Story
from holdfast.explain.read.sanitize import decoded
from holdfast.explain.read.scan import Scanner

LARGEST_DOCUMENT = 16 << 20
LARGEST_TABLE = 128 << 20
ECHO = 60
"""characters of an exception by which its echo is known"""
_ERROR_FILE = re.compile(rb'\s*\{\s*"message"')


def gather(
    paths: Sequence[str],
    *,
    stdin: Reader | None = None,
    progress: Callable[[int], None] | None = None,
    rules: RuleChoice | None = None,
    gone: Mapping[str, bool] | None = None,
) -> Wreckage:
    """Read everything under these paths, or what is piped in; `progress` gets bytes read. `gone`:
    folder of a run -> whether its launcher is gone, as far as that is known; without those whose
    launcher lives."""
    collector = _Collector(progress, rules, gone or {})
    plain = [path for path in paths if not run_folder.looks_like(path)]
    for run in run_folder.read_all([path for path in paths if path not in plain]):
        collector.read_run(run)
    if plain or not paths:
        collector.read_plain(plain, stdin)
    return collector.wreckage()


def gather_bytes(files: Mapping[str, bytes]) -> Wreckage:
    """The same for files that are in memory: name -> content."""
    collector = _Collector(None, None, {})
    for name, content in files.items():
        collector.read(Opened(name, io.BytesIO(content), size=len(content)), file_names.hints(name))
    return collector.wreckage()


class RuleChoice(NamedTuple):
    """Which rules of the user's own logs are searched for."""

    given: RuleSet = NO_RULES
    typed: bool = False
    """they were named for this call: runs are searched for them as well, not for their own"""

    def of_run(self, own: RuleSet) -> RuleSet:
        return self.given if self.typed else own


@functools.cache
def _scanner() -> Scanner:
    return Scanner(catalogue.log_patterns())


class _Collector:
    def __init__(
        self,
        progress: Callable[[int], None] | None,
        rules: RuleChoice | None,
        gone: Mapping[str, bool],
    ) -> None:
        self._progress = progress
        self._rules = rules
        self._gone = gone
        self._collected = Collected()
        self._logs = LogReader(_scanner(), self._collected)
        self._packed = run_folder.Packed()
        self._dumps: list[tuple[Opened, int | None, dumps.Dump]] = []

    def read_run(self, run: RunFolder) -> None:
        """A folder of `holdfast run`: its journal says who was who, and which attempt counts."""
        journal = run.paths.journal
        size = os.path.getsize(journal) if os.path.exists(journal) else 0
        self._tell(run.story, InputSource(name=journal, kind="journal", size=size))
        if run.story.last and (gone := self._gone.get(run.paths.folder)) is not None:
            self._collected.lost_runs.append(LostRun(line=run.story.last, gone=gone))
        if self._rules:
            self._search_for(self._rules.of_run(run.rules()), times=False)
        for rank, file in () if run.story.finished else run.files():
            self.read_all([file], None, told=FileNameHints(rank=rank, host=run.marker.node))

    def _search_for(self, rules: RuleSet, *, times: bool) -> None:
        self._collected.rules.use(rules, times=times)

    def _tell(self, story: Story, journal: InputSource) -> None:
        found = self._collected
        found.sources.append(journal)
        known = {(one.rank, one.code) for one in found.exits}
        found.exits.extend(one for one in story.exits if (one.rank, one.code) not in known)
        found.live_verdicts += story.told
        if self._rules:
            found.rules_told += [(record, journal.name, line) for line, record in story.rules]
            found.ended_well |= story.finished
        found.pids |= story.pids
        found.worlds |= story.worlds
        found.host = found.host or story.host
        found.world_size = story.world_size or found.world_size

    def read_plain(self, paths: Sequence[str], stdin: Reader | None) -> None:
        if self._rules:
            self._search_for(self._rules.given, times=True)
        self.read_all(paths, stdin)

    def read_all(
        self, paths: Sequence[str], stdin: Reader | None, *, told: FileNameHints | None = None
    ) -> None:
        for opened in inputs.sources(paths, stdin):
            if isinstance(opened, InputSource):
                self._collected.sources.append(opened)
                continue
            opened.progress = self._progress
            named = file_names.hints(opened.name)
            if told is not None:
                named = told if told.rank is not None else _on(named, told.host)
            self.read(opened, named)

    def read(self, opened: Opened, named: FileNameHints) -> None:
        peek = opened.peek()
        if self._belongs_to_packed_run(opened) or self._packed.passes_over(opened.name):
            return
        named = _on(named, self._packed.node(opened.name))
        if named.attempt is not None:
            self._collected.attempts[opened.name] = named.attempt
        if named.local_rank is not None:
            self._collected.local_ranks[opened.name] = named.local_rank
        if dumps.looks_like(peek, opened.name):
            rank = (
                named.rank
                if named.rank is not None
                else file_names.hints(opened.name, dump=True).rank
            )
            self._dumps.append((opened, rank, (opened.name, _bytes_of(opened))))
            return
        if stacks.looks_like(peek, opened.name):
            self._read_stacks(opened, named)
        elif read := self._reader_of_documents(peek):
            read(opened)
        elif words := run_folder.last_words(opened.name, peek):
            self._read_last_words(words, opened, named)
        elif told := _error_file(opened, peek):
            self._collected.order += 1
            order = self._collected.order
            self._collected.catch(documents.raised(told, opened.name, named, order=order))
            self._collected.sources.append(opened.source("error file", rank=named.rank))
        else:
            kind = self._read_log(opened, named, peek)
            self._collected.sources.append(opened.source(kind, rank=named.rank))

    def _reader_of_documents(self, peek: bytes) -> Callable[[Opened], None] | None:
        if ras.looks_like(peek):
            return self._read_ras
        if nccl_tests.looks_like(peek):
            return self._read_nccl_tests
        return self._read_recorder_table if recorder_table.looks_like(peek) else None

    def _belongs_to_packed_run(self, opened: Opened) -> bool:
        """Its journal or its rules, which say how the rest of it is read."""
        if story := self._packed.story(opened):
            self._tell(story, opened.source("journal"))
            if story.last:
                self._collected.lost_runs.append(LostRun(line=story.last, gone=False))
        elif self._rules and (rules := self._packed.rules(opened)) is not None:
            self._search_for(self._rules.of_run(rules), times=False)
            return True
        return bool(story)

    def _read_log(self, opened: Opened, named: FileNameHints, peek: bytes) -> str:
        """Only short texts are ever pasted from a terminal."""
        whole = rewrap.rejoined(peek) if len(peek) < inputs.PEEK else peek
        if whole == peek:
            return self._logs.read(opened, named, decoded(peek))
        pasted = Opened(opened.name, io.BytesIO(whole), size=opened.size)
        return self._logs.read(pasted, named, decoded(whole))

    def _read_stacks(self, opened: Opened, named: FileNameHints) -> None:
        """The stack of each process; its lines ('Fatal Python error') are searched as well."""
        data = opened.whole(LARGEST_DOCUMENT)
        for kept in stacks.read(data):
            rank = kept.rank if kept.rank is not None else named.rank
            pid = kept.pid if kept.pid is not None else named.pid
            self._collected.stacks.append((rank, pid, kept.stack))
        again = Opened(opened.name, io.BytesIO(data), size=opened.size)
        self._logs.read(again, named, decoded(data[: inputs.PEEK]))
        self._collected.sources.append(opened.source("stacks", rank=named.rank))

    def _read_last_words(self, words: LastWords, opened: Opened, named: FileNameHints) -> None:
        """Read as the line that Python prints, unless the rank's log had it already."""
        known = [one.text[:ECHO] for one in self._collected.raised if one.rank == named.rank]
        if words.text[:ECHO] not in known:
            text = f"{words.kind}: {words.text}"
            printed = Opened(opened.name, io.BytesIO(text.encode(errors="replace")))
            self._logs.read(printed, named, text)
        self._collected.sources.append(opened.source("last words", rank=named.rank))

    def _read_ras(self, opened: Opened) -> None:
        answer = ras.read(opened.whole(LARGEST_DOCUMENT), source=opened.name)
        source = opened.source("ncclras")
        if answer is None:
            problem = "an answer of ncclras that is cut short or damaged"
            source = msgspec.structs.replace(source, problem=source.problem or problem)
        else:
            self._collected.ras.append(answer)
        self._collected.sources.append(source)

    def _read_recorder_table(self, opened: Opened) -> None:
        try:
            found = recorder_table.read(decoded(opened.whole(LARGEST_TABLE)))
        except recorder_table.UnreadableTableError as why:
            source = msgspec.structs.replace(opened.source("recorder"), problem=str(why))
            self._collected.sources.append(source)
            return
        for rank, document in found.items():
            part = Opened(f"{opened.name} (rank {rank})", io.BytesIO(), size=len(document))
            self._dumps.append((part, rank, (part.name, functools.partial(bytes, document))))

    def _read_nccl_tests(self, opened: Opened) -> None:
        told = nccl_tests.read(opened.whole(LARGEST_DOCUMENT))
        source = opened.source("nccl-tests")
        if isinstance(told, str):
            self._collected.sources.append(msgspec.structs.replace(source, problem=told))
            return
        found = list(nccl_tests.sightings(told, opened.name, order=self._collected.order))
        for seen in found:
            self._collected.see(seen)
        self._collected.order += len(found)
        self._collected.sources.append(source)

    def wreckage(self) -> Wreckage:
        self._collected.rules.close()
        read = dumps.read_all([dump for _, _, dump in self._dumps])
        for (opened, rank, _), answer in zip(self._dumps, read, strict=True):
            problem = answer.why if isinstance(answer, Unread) else opened.problem
            source = InputSource(
                name=opened.name, kind="recorder", rank=rank, size=opened.size, problem=problem
            )
            self._collected.sources.append(source)
            if rank is not None:
                self._collected.recorders[rank] = answer
        found = self._collected
        legible = {r: one for r, one in found.recorders.items() if isinstance(one, Recorder)}
        found.recorders |= own_numbers.told_apart(legible, found.worlds)
        return assemble(found)


def _on(named: FileNameHints, host: str) -> FileNameHints:
    return msgspec.structs.replace(named, host=host) if host else named


def _error_file(opened: Opened, peek: bytes) -> tracebacks.ParsedException | None:
    """torchrun's error.json; a long one holds a long traceback."""
    if not _ERROR_FILE.match(peek):
        return None
    if len(peek) < inputs.PEEK:
        return tracebacks.error_file(peek)
    short = opened.path and opened.size <= LARGEST_DOCUMENT
    return tracebacks.error_file(_whole(opened.path)) if short else None


def _bytes_of(opened: Opened) -> functools.partial[bytes]:
    """A plain file is read when its turn comes; a member of an archive is here only now."""
    if opened.path:
        return functools.partial(_whole, opened.path)
    return functools.partial(bytes, opened.whole(dumps.LARGEST + 1))


def _whole(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(dumps.LARGEST + 1)
