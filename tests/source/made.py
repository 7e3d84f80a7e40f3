"""Sources for tests, read by the real readers from the text a user would write."""

from __future__ import annotations

import textwrap

import msgspec

from holdfast.lint import python as python_reader
from holdfast.source.nouns import Here, Launch, Source


def python(
    text: str,
    *,
    file: str = "train.py",
    started_by: tuple[Launch, ...] = (),
    torch: str = "2.13.0",
    complete: bool = True,
) -> Source:
    """A training script; the first line of the text is line 1, leading blank lines dropped."""
    source = python_reader.read(textwrap.dedent(text).lstrip("\n"), file, complete=complete)
    return msgspec.structs.replace(source, started_by=started_by, here=Here(torch=torch))
