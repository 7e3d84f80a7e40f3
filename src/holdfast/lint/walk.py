"""Paths -> files, their text, and why one could not be read.

Only regular files are ever opened: a FIFO would block, a device may do anything.
"""

from __future__ import annotations

import codecs
import io
import os
import stat
import tokenize
from collections.abc import Callable, Iterator
from typing import IO, NamedTuple

from holdfast.lint import detect_language
from holdfast.lint.detect_language import Language
from holdfast.text import size

SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", "site-packages"})
LARGEST = 5 << 20
"""bytes: a larger file was not written by hand"""
HEAD = 8192


class FoundFile(NamedTuple):
    path: str
    """as the user would write it"""
    named: bool
    """given by name, and not found in a folder: it is read whatever it is called"""


class UnreadFile(NamedTuple):
    path: str
    why: str


class LintText(NamedTuple):
    path: str
    language: Language
    text: str


def files(paths: list[str], excluded: Callable[[str], bool]) -> Iterator[FoundFile | UnreadFile]:
    """Every file once, folders in order of their names. What is named is never excluded."""
    seen: set[tuple[int, int]] = set()
    for path in paths:
        try:
            status = os.stat(path)
        except OSError as problem:
            yield UnreadFile(path, problem.strerror or "cannot be read")
            continue
        if not stat.S_ISDIR(status.st_mode):
            if _is_new(status, seen):
                yield FoundFile(path, named=True)
            continue
        yield from _folder(path, excluded, seen)


def _folder(
    top: str, excluded: Callable[[str], bool], seen: set[tuple[int, int]]
) -> Iterator[FoundFile | UnreadFile]:
    """Depth first without recursion, as a tree may be deep. Links are followed once."""
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            if not _is_new(os.stat(folder), seen):
                continue
            with os.scandir(folder) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError as problem:
            yield UnreadFile(folder, problem.strerror or "cannot be listed")
            continue
        if folder != top and any(entry.name == "pyvenv.cfg" for entry in entries):
            continue  # a virtual environment: other people's code
        below: list[str] = []
        for entry in entries:
            path = os.path.normpath(entry.path)
            if excluded(path):
                continue
            if _is_folder(entry):
                if not entry.name.startswith(".") and entry.name not in SKIPPED_FOLDERS:
                    below.append(path)
            elif _is_worth_opening(path) and _is_new_file(path, seen):
                yield FoundFile(path, named=False)
        waiting.extend(reversed(below))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_worth_opening(path: str) -> bool:
    return detect_language.by_name(path) is not None or detect_language.may_tell_by_content(path)


def _is_new_file(path: str, seen: set[tuple[int, int]]) -> bool:
    """A dangling link or a socket among the files of a folder is not a script, nor is a large
    file without an ending: that is a program."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    if status.st_size > LARGEST and detect_language.by_name(path) is None:
        return False
    return stat.S_ISREG(status.st_mode) and _is_new(status, seen)


def _is_new(status: os.stat_result, seen: set[tuple[int, int]]) -> bool:
    key = (status.st_dev, status.st_ino)
    if key in seen:
        return False
    seen.add(key)
    return True


def read(file: FoundFile) -> LintText | UnreadFile | None:
    """None: found in a folder, and not a kind of file that lint reads."""
    content = _bytes(file.path)
    if isinstance(content, UnreadFile):
        return content
    return understand(content, file.path, named=file.named)


def read_as(language: Language, path: str) -> LintText | UnreadFile:
    """A file of which we know what it is, whatever it is called."""
    content = _bytes(path)
    if isinstance(content, UnreadFile):
        return content
    text = _decoded(content, path, python=language is Language.PYTHON)
    return text if isinstance(text, UnreadFile) else LintText(path, language, text)


def _bytes(path: str) -> bytes | UnreadFile:
    try:
        # O_NONBLOCK: between our look and our open the name may have become a FIFO.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(number, "rb") as opened:
            status = os.fstat(number)
            if not stat.S_ISREG(status.st_mode):
                return UnreadFile(path, "not a regular file")
            if status.st_size > LARGEST:
                return _too_large(path, size(status.st_size))
            return opened.read(LARGEST)
    except OSError as problem:
        return UnreadFile(path, problem.strerror or "cannot be read")


def stream(opened: IO[bytes], path: str) -> LintText | UnreadFile | None:
    """From a pipe. A part would be judged as if it were all of it, so too much is not read."""
    content = opened.read(LARGEST + 1)
    if len(content) > LARGEST:
        return _too_large(path, f"more than {size(LARGEST)}")
    return understand(content, path, named=True)


def _too_large(path: str, how: str) -> UnreadFile:
    return UnreadFile(path, f"too large ({how}); only files up to {size(LARGEST)} are read")


def understand(content: bytes, path: str, *, named: bool) -> LintText | UnreadFile | None:
    """The text of a file and its language, from its name and its bytes."""
    language = detect_language.by_name(path)
    text = _decoded(content, path, python=language is Language.PYTHON)
    if isinstance(text, UnreadFile):
        return text if named or language is not None else None
    language = language or detect_language.by_content(path, text)
    if language is None and named:
        language = detect_language.of_snippet(text[: detect_language.HEAD]) or _as_document(path)
        if language is None:
            return UnreadFile(path, "not a script, launch script or document")
    return LintText(path, language, text) if language else None


def _decoded(content: bytes, path: str, *, python: bool) -> str | UnreadFile:
    if _is_binary(content):
        return UnreadFile(path, "not text: it contains NUL bytes")
    try:
        return decode(content, python=python)
    except (SyntaxError, LookupError, UnicodeError) as problem:
        return UnreadFile(path, f"cannot be decoded: {problem}")


def _as_document(path: str) -> Language | None:
    return None if os.path.splitext(path)[1] else Language.DOCUMENT


def _is_binary(content: bytes) -> bool:
    marked = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return b"\0" in content[:HEAD] and not marked


def decode(content: bytes, *, python: bool) -> str:
    """Python by its own rule (PEP 263); anything else is UTF-8, or UTF-16 with a mark, or what
    every byte is something in. Line ends become those of Python."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        text = content.decode("utf-16")
    elif python:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = content.decode(encoding)
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")
