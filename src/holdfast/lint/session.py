"""One lint, from files to what is said.

Launch scripts come first: they name the scripts that they start. Scripts are then read, judged and
freed one by one, so that a large tree needs little memory; the processors share a large tree.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast import catalogue
from holdfast.analysis.source.source import LintingMachine, Source, SourceKind, SourceSetting
from holdfast.fault import Fault
from holdfast.findings import Place
from holdfast.lint import images, link, read, walk
from holdfast.lint.config import LintConfig
from holdfast.lint.detect_language import Language, by_name
from holdfast.lint.ignore import IgnoreComments, names_of
from holdfast.lint.judge import judge, of_environment
from holdfast.lint.read import FileSources
from holdfast.lint.tally import LintReport, LintTally
from holdfast.lint.walk import FoundFile, LintText, UnreadFile
from holdfast.system import deadline

Progress = Callable[[int], None]
Numbered = tuple[int, FoundFile]
BROKEN = catalogue.by_slug("script-broken")
WORTH_SHARING = 100
"""scripts: fewer are done sooner than a second process has started"""
SHARE = 200
"""scripts a processor takes at a time, so that progress can be shown"""
HOUR = 3600.0


class LintSession:
    """What holds for all files of one lint."""

    def __init__(
        self, select: Sequence[str], configuration: LintConfig, here: LintingMachine
    ) -> None:
        self._configuration = configuration
        self._here = here
        self._select = tuple(select)
        self._chosen = functools.cache(self._choose)
        self._names = frozenset(
            name for e in catalogue.entries() for name in names_of(e.fault.code, e.fault.slug)
        )
        self._tally = LintTally()
        self._links = link.LaunchLinks([], [])
        for names in configuration.per_file_ignores.values():
            self._chosen(names)  # an unknown name is an error now, not when a file matches

    def _choose(self, also_ignored: tuple[str, ...] = ()) -> list[Fault]:
        chosen = catalogue.choose(self._select, (*self._configuration.ignore, *also_ignored))
        return [fault for fault in chosen if fault.lint_faces]

    # --- the work -------------------------------------------------------------------------------

    def files(self, found: Sequence[FoundFile | UnreadFile], progress: Progress) -> None:
        scripts: list[Numbered] = []
        launch_scripts: list[tuple[int, FileSources]] = []
        for order, item in enumerate(found):
            if isinstance(item, UnreadFile):
                self._tally.unread.append((order, item))
            elif by_name(item.path) is Language.PYTHON:
                scripts.append((order, item))
            else:
                text = walk.read(item)
                if isinstance(text, LintText) and text.language is Language.PYTHON:
                    scripts.append((order, item))
                else:
                    launch_scripts += self._read(order, text)
                    progress(1)
        self._launch_scripts(launch_scripts, scripts)
        self._scripts(scripts, progress)

    def text(self, text: LintText | UnreadFile | None) -> None:
        """What came by stdin."""
        for order, piece in self._read(0, text):
            self._judge(order, piece)

    def environment(self, values: Mapping[str, str]) -> None:
        """Of this process; what is handed in has its secrets taken out."""
        settings = tuple(
            SourceSetting(name=name, value=value, place=Place(file="", line=line), by="environment")
            for line, (name, value) in enumerate(values.items(), start=1)
        )
        source = Source(file="", kind=SourceKind.ENVIRONMENT, settings=settings)
        found = of_environment(source, self._chosen(), self._here)
        self._tally.findings += [(-1, one) for one in found]

    def report(self) -> LintReport:
        return self._tally.report()

    def _launch_scripts(
        self, launch_scripts: list[tuple[int, FileSources]], scripts: list[Numbered]
    ) -> None:
        read_so_far = [s for _, piece in launch_scripts for s in piece.sources]
        together = images.with_launches(link.with_services(link.with_hosts(read_so_far)))
        self._links = link.LaunchLinks(together, [file.path for _, file in scripts])
        rest = iter(together)
        for order, piece in launch_scripts:
            self._judge(order, piece._replace(sources=[next(rest) for _ in piece.sources]))

    def _scripts(self, scripts: list[Numbered], progress: Progress) -> None:
        processors = len(os.sched_getaffinity(0))
        if processors < 2 or len(scripts) < WORTH_SHARING:
            self._one_by_one(scripts, progress)
            return
        for start in range(0, len(scripts), SHARE * processors):
            batch = scripts[start : start + SHARE * processors]
            self._shared([batch[one::processors] for one in range(processors)])
            progress(len(batch))

    def _one_by_one(self, scripts: list[Numbered], progress: Progress) -> None:
        for order, file in scripts:
            for _, piece in self._read(order, walk.read(file)):
                self._judge(order, piece)
            progress(1)

    # --- several processors ---------------------------------------------------------------------

    def _shared(self, shares: list[list[Numbered]]) -> None:
        """Each share in a child process; the share of one that dies is done again here."""
        questions = {
            str(number): functools.partial(self._in_a_child, share)
            for number, share in enumerate(shares)
            if share
        }
        for number, answer in deadline.ask(questions, seconds=HOUR).items():
            if isinstance(answer, bytes):
                self._tally.add(msgspec.msgpack.decode(answer, type=LintTally))
            else:
                self._one_by_one(shares[int(number)], lambda _: None)

    def _in_a_child(self, share: list[Numbered]) -> bytes:
        self._tally = LintTally()
        self._one_by_one(share, lambda _: None)
        return msgspec.msgpack.encode(self._tally)

    # --- one file -------------------------------------------------------------------------------

    def _read(
        self, order: int, text: LintText | UnreadFile | None
    ) -> list[tuple[int, FileSources]]:
        if text is None:
            return []
        piece = text if isinstance(text, UnreadFile) else read.read(text)
        if isinstance(piece, UnreadFile):
            self._tally.unread.append((order, piece))
            return []
        if _is_refused(piece):
            self._tally.refused += 1
        else:
            self._tally.read.append((order, (piece.text.path, piece.text.language.value)))
        return [(order, piece)] if piece.sources else []

    def _judge(self, order: int, piece: FileSources) -> None:
        path = piece.text.path
        ignored = IgnoreComments(piece.text.text)
        for line, name in ignored.unknown(self._names):
            slip = f"{path}:{line}: unknown fault {name!r}: this comment ignores nothing"
            self._tally.remarks.append((order, slip))
        ignored_here = self._configuration.ignored_in(path)
        faults = self._chosen(ignored_here)
        if _is_refused(piece):  # reported whatever was selected, unless it is ignored
            wanted = catalogue.choose((), (*self._configuration.ignore, *ignored_here))
            faults = [fault for fault in wanted if fault is BROKEN]
        started_by = self._links.of(path)
        found = judge(piece, faults, ignored, here=self._here, started_by=started_by)
        self._tally.findings += [(order, one) for one in found]


def _is_refused(piece: FileSources) -> bool:
    """Python refuses it, so nothing could be read; a broken launch script is linted in part."""
    return any(source.refused and source.kind is SourceKind.PYTHON for source in piece.sources)
