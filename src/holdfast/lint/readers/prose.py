"""The running text of a document -> Sources: inline code, settings and commands in sentences.

Each stands alone. What a text names in two bullets, or twice in a sentence, are alternatives;
nobody sets them all together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from holdfast.analysis.source.source import Kind, Setting, Source, Word
from holdfast.analysis.variables import PREFIXES
from holdfast.findings import Place
from holdfast.lint.detect_language import Language
from holdfast.lint.reader_list import reader
from holdfast.lint.readers.blocks import Line

LAUNCHERS = (
    "torchrun", "deepspeed", "horovodrun", "accelerate", "mpirun", "mpiexec", "srun", "sbatch",
)  # fmt: skip
TOOLS = (
    *LAUNCHERS, "docker", "podman", "nerdctl", "apptainer", "singularity", "pip", "pip3", "conda",
    "uv", "sysctl", "pkill", "pgrep", "killall", "kill", "fuser", "ulimit", "export", "unset",
    "env", "ufw", "systemctl", "setenforce", "iptables", "python", "python3", "ssh", "holdfast",
)  # fmt: skip
LONGEST = 10_000
"""characters: a longer line is data"""
NEAR = 80
"""characters around code that may say it is advised against"""
_NAME = rf"(?:{'|'.join(PREFIXES)}|MASTER_(?=ADDR|PORT))[A-Z0-9_]+"
_WORTHWHILE = re.compile(rf"{_NAME}=|`|\((?:{'|'.join(LAUNCHERS)})\s")
_INLINE = re.compile(r"(?<!`)(`{1,2})(?!`)(?P<code>.+?)(?<!`)\1(?!`)")
_SETTING = re.compile(
    rf"(?<![\w$.?&\[/\"'-])(?:export\s+)?{_NAME}="
    r"(?:\"[^\"]*\"|'[^']*'|<[^<>]*>|[^\s`|<>()\"'*\\]*)"
)
_IN_BRACKETS = re.compile(rf"\((?P<code>(?:{'|'.join(LAUNCHERS)})\s(?:[^()]*\s)?-[^()]*)\)")
_COMMAND = re.compile(rf"(?:\$\s+)?(?:sudo\s+)?(?:{'|'.join(TOOLS)})\s+\S")
_WHOLE_LINE = re.compile(
    rf"\s*(?:\$\s+)?(?P<code>(?:{'|'.join(LAUNCHERS)})(?:\s+[\w./:=,@$-]+)+)\s*$"
)
_VERSION = re.compile(r"\bNCCL\s+(?:version\s+)?v?2\.\d{1,2}\.\d{1,2}(?![\w.]*\d)")
_PUNCTUATION = ".,;:!?…"
_ADVISED_AGAINST = re.compile(
    r"\b(?:not|n't|never|avoid|without|instead of|rather than|remove|drop|unset|delete|no longer"
    r"|deprecated|obsolete|outdated|wrong|useless|replaces?|stop setting)\b[^.;:]{0,24}$",
    re.IGNORECASE,
)
_REPORTED = re.compile(
    r"\W{0,3}\s*(?:(?:is|are|was|were|has been|have been|does|do|did|will)\s+)?(?:\w+\s+)?(?:not\b"
    r"|never\b|no longer\b|deprecated\b|obsolete\b|ignored\b|removed\b|unknown\b|read by nobody"
    r"|nothing\b|wrong\b)",
    re.IGNORECASE,
)


class Span(NamedTuple):
    """A piece of one line."""

    text: str
    line: int
    column: int
    """of its first character, counted from 0"""


def read(lines: Iterable[Line], file: str) -> Iterator[Source]:
    for line in lines:
        if len(line.text) > LONGEST:
            continue
        yield from _versions(line, file)
        if _WORTHWHILE.search(line.text) or _WHOLE_LINE.match(line.text):
            for span in spans(line):
                if not _is_advised_against(line.text, span):
                    yield _source(span, file)


def _versions(line: Line, file: str) -> Iterator[Source]:
    """'upgrade to NCCL 2.21.5': a release that a sentence names."""
    for found in _VERSION.finditer(line.text):
        span = Span(found[0], line.number, found.start())
        if not _is_advised_against(line.text, span):
            place = Place(file=file, line=line.number, column=found.start() + 1)
            word = Word(text=found[0], place=place)
            yield Source(file=file, kind=Kind.PROSE, versions=(word,), complete=False)


def spans(line: Line) -> Iterator[Span]:
    """What of a line is meant as code."""
    rest = _INLINE.sub(_blank, line.text)
    for found in _INLINE.finditer(line.text):
        yield from _of_inline(found["code"], line.number, found.start("code"))
    if whole := _WHOLE_LINE.match(rest):
        yield Span(whole["code"], line.number, whole.start("code"))
        return
    for found in _IN_BRACKETS.finditer(rest):
        yield Span(found["code"], line.number, found.start("code"))
    yield from _settings(_IN_BRACKETS.sub(_blank, rest), line.number)


def _blank(found: re.Match[str]) -> str:
    """What is read already; every other character keeps its place."""
    return " " * len(found[0])


def _of_inline(code: str, line: int, column: int) -> Iterator[Span]:
    """A command or settings; a single word is a name that is spoken of, not typed."""
    blank = len(code) - len(code.lstrip(" $"))
    code, column = code[blank:].rstrip(), column + blank
    several = re.match(rf"(?:export\s+)?{_NAME}=\S*\s", code)
    if _COMMAND.match(code) or several:
        yield Span(code, line, column)
    else:
        yield from _settings(code, line, column)


def _settings(text: str, line: int, column: int = 0) -> Iterator[Span]:
    """`NAME=value` in a sentence, whose punctuation is no part of the value."""
    for found in _SETTING.finditer(text):
        plain = found[0].rstrip(_PUNCTUATION)
        # `NAME=...` stands for a value, and is no empty one
        yield Span(found[0] if plain.endswith("=") else plain, line, column + found.start())


def _is_advised_against(line: str, span: Span) -> bool:
    """'Never set X=1', 'X=1 is deprecated': the text says it itself."""
    # Near by: a line may be a long paragraph with hundreds of settings in it.
    before = line[max(0, span.column - NEAR) : span.column]
    after = line[span.column + len(span.text) :][:NEAR]
    return bool(_ADVISED_AGAINST.search(before.rstrip("` (")) or _REPORTED.match(after))


def _source(span: Span, file: str) -> Source:
    made = reader(Language.SHELL)(
        span.text, file, first_line=span.line, indent=span.column, complete=False
    )
    settings = tuple(_by_prose(setting) for setting in made.settings)
    return msgspec.structs.replace(made, kind=Kind.PROSE, settings=settings)


def _by_prose(setting: Setting) -> Setting:
    """A variable that a text tells to set is meant for the programs, exported or not."""
    return msgspec.structs.replace(setting, by="prose", exported=True)
