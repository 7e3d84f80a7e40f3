"""The tables of variables: how the files in `data/` are written, and reading them.

A file is tab-separated, one variable a line, below comments that say what holds for the rows that
follow, until the next such comment:

    # reader: NCCL                        the program that reads them, or 'no program'
    # version: NCCL 2.32.3                what they were read from; none where only documents tell
    # defaults: 2.30.7                    the oldest version that was seen to have the same defaults
    # prefixes: NCCL_                     names that begin so are judged by this table
    # source: docs/…/env.rst, RDMA        where exactly
    name    since   state   default   effect

`since` is the first version that reads the variable, empty where we do not know it. `state` is
empty, `until 2.4` (the last version that read it), `use OTHER` (the newer name), both, `obsolete`
(still read, without effect), or `older groups` (only by the NCCL groups that torch makes before
2.15, or with TORCH_DIST_USE_NCCL2=0). A name that ends in `*` stands for a family whose reader
composes the names at run time, so that no list of them can be complete.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent / "data"
FILES = (
    "nccl.tsv",
    "nccl_undocumented.tsv",
    "pytorch.tsv",
    "frameworks.tsv",
    "plugins.tsv",
    "launchers.tsv",
    "runtime.tsv",
    "schedulers.tsv",
    "read_by_no_program.tsv",
)
"""in the order in which `env` shows their readers"""

NO_READER = "no program"
_STATE = re.compile(
    r"(?:until (?P<until>[\d.]+))? ?(?:use (?P<instead>\w+))?|(?P<obsolete>obsolete)"
    r"|(?P<older_groups>older groups)"
)
_DIRECTIVE = re.compile(r"# (reader|version|defaults|prefixes|source): (.*)")


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """Which program reads an environment variable, since when, and what for."""

    name: str
    """ends in '*' for a family of names"""
    reader: str
    """'NCCL', 'PyTorch', 'Gloo in PyTorch', 'torchrun', 'Accelerate'…, or 'no program'"""
    since: str
    until: str
    """the last version that read it; '' while it is read"""
    instead: str
    """the name to use today; '' when this one is right"""
    default: str
    effect: str
    """where no program reads it: why, and what to do instead"""
    source: str
    obsolete: bool = False
    """still read, without effect"""
    older_groups: bool = False
    """read only by the NCCL groups of torch before 2.15, or with TORCH_DIST_USE_NCCL2=0"""

    @property
    def is_read(self) -> bool:
        return self.reader != NO_READER


class Tables(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the files hold."""

    rows: tuple[Variable, ...]
    readers: tuple[str, ...]
    """in their order"""
    version_of_reader: dict[str, str]
    version_of_prefix: dict[str, str]
    defaults_of_reader: dict[str, str]
    """the oldest version with these defaults, without the program's name"""


@functools.cache
def tables() -> Tables:
    """All files together; read when the first question comes."""
    return parse(line for name in FILES for line in (FOLDER / name).read_text("utf-8").splitlines())


def parse(lines: Iterable[str]) -> Tables:
    """Raises ValueError where a line is not written as it must be."""
    rows: list[Variable] = []
    now = dict.fromkeys(("reader", "version", "source"), "")
    version_of_reader: dict[str, str] = {}
    version_of_prefix: dict[str, str] = {}
    defaults_of_reader: dict[str, str] = {}
    for line in lines:
        if directive := _DIRECTIVE.fullmatch(line):
            name, value = directive.groups()
            if name == "reader":
                now = {"reader": value, "version": "", "source": ""}
            elif name == "prefixes":
                version_of_prefix |= dict.fromkeys(value.split(), now["version"])
            elif name == "defaults":
                defaults_of_reader[now["reader"]] = value
            else:
                now[name] = value
            if name == "version":
                version_of_reader[now["reader"]] = value
        elif line and not line.startswith("#"):
            rows.append(_row(line, reader=now["reader"], source=now["source"]))
    return Tables(
        rows=tuple(rows),
        readers=tuple(dict.fromkeys(row.reader for row in rows)),
        version_of_reader=version_of_reader,
        version_of_prefix=version_of_prefix,
        defaults_of_reader=defaults_of_reader,
    )


def _row(line: str, *, reader: str, source: str) -> Variable:
    cells = line.split("\t")
    if len(cells) != 5:
        raise ValueError(f"{line!r} has {len(cells)} columns, expected 5")
    name, since, state, default, effect = cells
    match = _STATE.fullmatch(state)
    if match is None:
        raise ValueError(
            f"{name}: state {state!r} is not 'until VERSION', 'use NAME', 'obsolete' or "
            "'older groups'"
        )
    return Variable(
        name=name,
        reader=reader,
        since=since,
        until=match["until"] or "",
        instead=match["instead"] or "",
        default=default,
        effect=effect,
        source=source,
        obsolete=bool(match["obsolete"]),
        older_groups=bool(match["older_groups"]),
    )
