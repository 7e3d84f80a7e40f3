"""Hostfiles of DeepSpeed, Open MPI, MPICH and Horovod -> hosts and their slots."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.source.source import HostSlots, Source, SourceKind
from holdfast.lint.readers.env_file import lines
from holdfast.lint.readers.shell.nested_text import FileText, NestedText

LINE = re.compile(
    r"[ \t]*(?P<name>\[[0-9a-fA-F:]+\]|[A-Za-z0-9_][\w.-]*)"
    r"(?::(?P<colon>\d{1,9}))?(?P<rest>(?:[ \t].*)?)$"
)
SLOTS = re.compile(r"\bslots[ \t]*=[ \t]*(\d{1,9})\b")


def read(
    text: str, file: str, *, first_line: int = 1, indent: int = 0, complete: bool = True
) -> Source:
    ground = FileText(text, file, first_line=first_line, indent=indent)
    hosts = tuple(hosts_of(ground.whole()))
    return Source(file=file, kind=SourceKind.HOSTFILE, hosts=hosts, complete=complete)


def hosts_of(passage: NestedText) -> Iterator[HostSlots]:
    """`node1 slots=4` (DeepSpeed, Open MPI), `node1:4` (MPICH, Horovod), `node1` alone."""
    for at, line in lines(passage):
        text = line.decode("utf-8", "replace").partition("#")[0].rstrip()
        match = LINE.match(text)
        if match is None:
            continue
        given = SLOTS.search(match["rest"])
        slots = given[1] if given else match["colon"]
        yield HostSlots(
            name=match["name"],
            slots=int(slots) if slots else None,
            place=passage.place(at + len(text[: match.start("name")].encode())),
        )
