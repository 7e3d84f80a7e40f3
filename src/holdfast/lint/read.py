"""The text of a file -> its Sources, by the reader of its language."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.analysis.source.source import Source
from holdfast.lint.detect_language import Language
from holdfast.lint.reader_list import reader
from holdfast.lint.readers import bash_syntax, documents, notebook, python
from holdfast.lint.walk import LintText, UnreadFile


class FileSources(NamedTuple):
    """A file with what was read out of it."""

    text: LintText
    sources: list[Source]


def read(text: LintText) -> FileSources | UnreadFile:
    try:
        return _read(text)
    except Exception as bug:  # noqa: BLE001 - one file must not hide the others
        why = f"its reader failed, a bug in holdfast: {type(bug).__name__}: {bug}"
        return UnreadFile(text.path, why)


def _read(text: LintText) -> FileSources | UnreadFile:
    if text.language is Language.DOCUMENT:
        return FileSources(text, list(documents.markdown(text.text, text.path)))
    if text.language is Language.RST:
        return FileSources(text, list(documents.rst(text.text, text.path)))
    if text.language is Language.NOTEBOOK:
        made = notebook.read(text.text, text.path)
        if isinstance(made, str):
            return UnreadFile(text.path, made)
        return FileSources(text._replace(text=made.text), [made.source])
    if text.language is Language.PYTHON:
        return FileSources(text, [python.read_all(text.text, text.path)])
    source = reader(text.language)(text.text, text.path)
    return FileSources(text, [bash_syntax.confirmed(source, text.text)])
