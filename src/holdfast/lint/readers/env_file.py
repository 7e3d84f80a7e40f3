""".env files, DeepSpeed's .deepspeed_env and nccl.conf -> Source.

An nccl.conf is read as NCCL reads it: nothing is trimmed, so that `NCCL_DEBUG = INFO` sets a
variable that nothing reads. The others are read leniently, as compose and python-dotenv do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.source.source import Source, SourceKind, SourceSetting
from holdfast.lint.readers.shell import grammar
from holdfast.lint.readers.shell.nested_text import FileText, NestedText

LINE = re.compile(
    rb"[ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][\w.]*)[ \t]*=[ \t]*"
    rb"(?P<value>'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\"|[^\n]*)"
)
SYSCTL = re.compile(rb"[ \t]*-?(?P<name>[a-z]\w*(?:[./][\w.\-]+)+)[ \t]*=(?P<value>[^\n]+)")
COMMENT = re.compile(r"(?:^|[ \t]+)#.*")


def read(
    text: str, file: str, *, first_line: int = 1, indent: int = 0, complete: bool = True
) -> Source:
    ground = FileText(text, file, first_line=first_line, indent=indent)
    settings = tuple(settings_of(ground.whole()))
    return Source(file=file, kind=SourceKind.ENV_FILE, settings=settings, complete=complete)


def read_nccl_conf(
    text: str, file: str, *, first_line: int = 1, indent: int = 0, complete: bool = True
) -> Source:
    ground = FileText(text, file, first_line=first_line, indent=indent)
    settings = tuple(nccl_settings_of(ground.whole()))
    return Source(file=file, kind=SourceKind.NCCL_CONF, settings=settings, complete=complete)


def lines(passage: NestedText) -> Iterator[tuple[int, bytes]]:
    """Each line with the byte it begins at."""
    at = 0
    for line in passage.data.split(b"\n"):
        yield at, line
        at += len(line) + 1


def settings_of(passage: NestedText) -> Iterator[SourceSetting]:
    for at, line in lines(passage):
        match = LINE.match(line)
        if match is None:
            continue
        written = match["value"].decode("utf-8", "replace").strip()
        value, literal = _unquoted(written)
        masked = grammar.masked(value.encode("utf-8", "replace")).decode("utf-8", "replace")
        yield SourceSetting(
            name=match["name"].decode(),
            value=value,
            place=passage.place(at + match.start("name")),
            known=(literal or "$" not in value) and not grammar.elided(masked),
            written=written,
            by="env file",
        )


def _unquoted(written: str) -> tuple[str, bool]:
    """The value, and whether `$` in it stands for itself."""
    if len(written) >= 2 and written[0] == written[-1] and written[0] in "'\"":
        return written[1:-1], written[0] == "'"
    return COMMENT.sub("", written, count=1), False


def nccl_settings_of(passage: NestedText) -> Iterator[SourceSetting]:
    """A name ends at the first `=`; only a line that begins with # is a comment (param.cc)."""
    for at, line in lines(passage):
        name, equals, value = line.decode("utf-8", "replace").partition("=")
        if equals and name and not name.startswith("#"):
            yield SourceSetting(
                name=name,
                value=value,
                place=passage.place(at),
                known=not grammar.elided(grammar.masked(value.encode()).decode()),
                written=value,
                by="nccl.conf",
            )


def sysctl_settings_of(passage: NestedText) -> Iterator[SourceSetting]:
    """`net.ipv4.tcp_tw_reuse = 1`: settings of the kernel, which no program finds in itself."""
    for at, line in lines(passage):
        match = SYSCTL.match(line)
        if match is not None:
            value = match["value"].decode("utf-8", "replace").strip()
            yield SourceSetting(
                name=match["name"].decode().replace("/", "."),
                value=value,
                place=passage.place(at + match.start("name")),
                known="$" not in value,
                exported=False,
                written=value,
                by="sysctl.conf",
            )
