"""A path -> the files under it, in the order a person would list them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from holdfast.analysis.logs.wreckage import InputSource
from holdfast.explain.read.sanitize import plain

MOST_FILES = 20_000
DEEPEST = 24


class Walk:
    """One walk over several paths: what two names lead to is read once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._files = 0

    def under(self, path: str) -> Iterator[str | InputSource]:
        """The path itself, or that of each regular file in the folder; a Source for each thing
        that is skipped."""
        if not self._first_time(path):
            return
        if os.path.isdir(path):
            yield from self._folder(path, depth=1)
        else:
            yield path

    def _folder(self, folder: str, *, depth: int) -> Iterator[str | InputSource]:
        try:
            names = sorted(os.listdir(folder), key=_natural)
        except OSError as error:
            yield _passed(folder, f"could not be listed: {error.strerror}")
            return
        for name in names:
            path = os.path.join(folder, name)
            if hidden(name):
                yield _passed(path, "skipped: hidden")
            elif os.path.isdir(path):
                if depth >= DEEPEST:
                    yield _passed(path, f"skipped: more than {DEEPEST} folders deep")
                elif self._first_time(path):
                    yield from self._folder(path, depth=depth + 1)
            elif self._files >= MOST_FILES:
                yield _passed(folder, f"only the first {MOST_FILES:,} files were read")
                return
            else:
                yield from self._file(path)

    def _file(self, path: str) -> Iterator[str | InputSource]:
        if os.path.isfile(path):
            if self._first_time(path):
                self._files += 1
                yield path
        elif os.path.lexists(path):
            what = "a broken link" if os.path.islink(path) else "not a regular file"
            yield _passed(path, f"skipped: {what}")

    def _first_time(self, path: str) -> bool:
        # By name and not by inode: some network file systems give one inode to many files.
        real = os.path.realpath(path)
        if real in self._seen:
            return False
        self._seen.add(real)
        return True


def hidden(name: str) -> bool:
    return name.startswith(".")


def _passed(name: str, problem: str) -> InputSource:
    return InputSource(name=plain(name), kind="unread", problem=problem)


def _natural(name: str) -> list[tuple[int, str]]:
    """rank2 before rank10."""
    return [
        (int(part[:18]), part) if part.isdecimal() else (-1, part)
        for part in re.split(r"(\d+)", name)
    ]
