"""One row of the table of variables, and how the tables in this folder are written.

A table is text, one variable a line, so that it reads like one and costs nothing to import:

    [where the rows below were read]
    NAME | since | state | default | effect

`since` is the first version that reads the variable, empty where we do not know it. `state` is
empty, `until 2.4` (the last version that read it), `use OTHER` (the newer name), or both. A
name that ends in `*` stands for a family whose reader composes the names at run time, so that
no list of them can be complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

STATE = re.compile(r"(?:until (?P<until>[\d.]+))? ?(?:use (?P<instead>\w+))?")


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """Who reads an environment variable, since when, and what for."""

    name: str
    """ends in '*' for a family of names"""
    reader: str
    """'NCCL', 'PyTorch', 'Gloo in PyTorch', 'torchrun', 'Accelerate'…, or 'nobody'"""
    since: str
    until: str
    """the last version that read it; '' while it is read"""
    instead: str
    """the name to use today; '' when this one is right"""
    default: str
    effect: str
    """for a reader 'nobody': why, and what to do instead"""
    source: str

    @property
    def is_read(self) -> bool:
        return self.reader != "nobody"


def rows(reader: str, text: str) -> Iterator[Variable]:
    """The variables of one table."""
    source = ""
    for line in text.strip().splitlines():
        if line.startswith("["):
            source = line.strip("[]")
            continue
        name, since, state, default, effect = (part.strip() for part in line.split("|"))
        match = STATE.fullmatch(state)
        assert match, f"{name}: {state!r} is neither 'until VERSION' nor 'use NAME'"
        yield Variable(
            name=name,
            reader=reader,
            since=since,
            until=match["until"] or "",
            instead=match["instead"] or "",
            default=default,
            effect=effect,
            source=source,
        )
