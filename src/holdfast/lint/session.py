"""One lint, from paths to what is said.

Recipes come first: they tell which scripts they start. Scripts are then read, judged and let go
one by one, so that a large tree needs no large memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast import catalogue
from holdfast.fault import Fault
from holdfast.lint import linking, reading, walk
from holdfast.lint.configuration import Configuration
from holdfast.lint.ignoring import Ignored, names_of
from holdfast.lint.judge import Told, judge, of_environment
from holdfast.lint.reading import Piece
from holdfast.lint.sniff import Language, by_name
from holdfast.lint.walk import File, Text, Unread
from holdfast.source.nouns import Here, Kind, Setting, Source
from holdfast.source.place import Place

Progress = Callable[[int], None]
BROKEN = catalogue.by_slug("script-broken")


class Report(NamedTuple):
    told: list[Told]
    unread: list[Unread]
    looked_at: int
    refused: int
    """whole scripts that are no valid Python"""
    read: list[tuple[str, str]]
    """path and language"""
    remarks: list[str]
    """slips in the comments that ask us to be silent"""


class Session:
    """What holds for all files of one lint."""

    def __init__(self, select: Sequence[str], configuration: Configuration, here: Here) -> None:
        self._configuration = configuration
        self._here = here
        self._select = tuple(select)
        self._ignore = configuration.ignore
        self._chosen = functools.cache(self._choose)
        self._names = frozenset(
            name for e in catalogue.entries() for name in names_of(e.fault.code, e.fault.slug)
        )
        self._told: list[tuple[int, list[Told]]] = []
        self._unread: list[tuple[int, Unread]] = []
        self._read: list[tuple[int, tuple[str, str]]] = []
        self._remarks: list[str] = []
        self._looked_at = 0
        self._refused = 0
        for names in configuration.per_file_ignores.values():
            self._chosen(names)  # an unknown name is told at once, not when a file matches

    def _choose(self, also_ignored: tuple[str, ...] = ()) -> list[Fault]:
        chosen = catalogue.choose(self._select, (*self._ignore, *also_ignored))
        return [fault for fault in chosen if fault.inspections]

    # --- the work -------------------------------------------------------------------------------

    def files(self, found: Sequence[File | Unread], progress: Progress) -> None:
        scripts: list[tuple[int, File]] = []
        recipes: list[tuple[int, Piece]] = []
        for order, item in enumerate(found):
            if isinstance(item, Unread):
                self._unread.append((order, item))
            elif by_name(item.path) is Language.PYTHON:
                scripts.append((order, item))
            else:
                text = walk.read(item)
                if isinstance(text, Text) and text.language is Language.PYTHON:
                    scripts.append((order, item))
                else:
                    recipes += self._recipe(order, text)
                    progress(1)
        together = linking.with_hosts([s for _, piece in recipes for s in piece.sources])
        links = linking.Links(together, [file.path for _, file in scripts])
        rest = iter(together)
        for order, piece in recipes:
            self._judge(order, piece._replace(sources=[next(rest) for _ in piece.sources]))
        for order, file in scripts:
            self._script(order, walk.read(file), links)
            progress(1)

    def text(self, text: Text | Unread | None) -> None:
        """What came by stdin."""
        for order, piece in self._recipe(0, text):
            self._judge(order, piece)

    def environment(self, values: Mapping[str, str]) -> None:
        """Of this process; what is handed in has its secrets taken out."""
        settings = tuple(
            Setting(name=name, value=value, place=Place(file="", line=line), by="environment")
            for line, (name, value) in enumerate(values.items(), start=1)
        )
        source = Source(file="", kind=Kind.ENVIRONMENT, settings=settings)
        self._told.append((-1, of_environment(source, self._chosen(), self._here)))

    def report(self) -> Report:
        return Report(
            told=[t for _, told in sorted(self._told, key=lambda pair: pair[0]) for t in told],
            unread=[unread for _, unread in sorted(self._unread, key=lambda pair: pair[0])],
            looked_at=self._looked_at,
            refused=self._refused,
            read=[pair for _, pair in sorted(self._read)],
            remarks=self._remarks,
        )

    # --- one file -------------------------------------------------------------------------------

    def _recipe(self, order: int, text: Text | Unread | None) -> list[tuple[int, Piece]]:
        if text is None:
            return []
        piece = text if isinstance(text, Unread) else reading.read(text)
        if isinstance(piece, Unread):
            self._unread.append((order, piece))
            return []
        if not _is_refused(piece):
            self._looked_at += 1
            self._read.append((order, (piece.text.path, piece.text.language.value)))
        return [(order, piece)] if piece.sources else []

    def _script(self, order: int, text: Text | Unread | None, links: linking.Links) -> None:
        for _, piece in self._recipe(order, text):
            self._judge(order, piece, links)

    def _judge(self, order: int, piece: Piece, links: linking.Links | None = None) -> None:
        path = piece.text.path
        ignored = Ignored(piece.text.text)
        for line, name in ignored.unknown(self._names):
            self._remarks.append(f"{path}:{line}: no fault is called {name!r}: nothing is ignored")
        ignored_here = self._configuration.ignored_in(path)
        faults = self._chosen(ignored_here)
        if _is_refused(piece):  # told whatever was selected, unless it was asked not to be
            wanted = catalogue.choose((), (*self._ignore, *ignored_here))
            faults = [fault for fault in wanted if fault is BROKEN]
            self._refused += 1
        started_by = links.of(path) if links else ()
        told = judge(piece, faults, ignored, here=self._here, started_by=started_by)
        self._told.append((order, told))


def _is_refused(piece: Piece) -> bool:
    return any(source.refused and source.complete for source in piece.sources)
