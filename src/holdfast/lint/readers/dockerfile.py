"""Dockerfiles -> Source: ENV is a setting; RUN, CMD and ENTRYPOINT are commands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec

from holdfast.analysis.source.source import (
    ContainerRun,
    Flag,
    Source,
    SourceKind,
    SourceSetting,
)
from holdfast.lint.readers import shell
from holdfast.lint.readers.shell import grammar
from holdfast.lint.readers.shell.nested_text import FileText, NestedText
from holdfast.lint.readers.shell.scope import ShellScope, ShellVariable, WordPiece
from holdfast.lint.readers.shell.shell_reading import ShellReading

INSTRUCTION = re.compile(rb"[ \t]*([A-Za-z]+)(?=[ \t\\]|$)[ \t]*")
SKIPPED = re.compile(rb"[ \t]*(?:#.*)?$")
"""lines that count for nothing inside an instruction"""
HEREDOC = re.compile(rb"<<-?[ \t]*([\"']?)([A-Za-z_]\w*)\1")
LONGEST_DOCUMENT = 20_000
"""bytes to look for its end; longer ones are passed over line by line"""
OWN_OPTION = re.compile(rb"(?:--[a-z]+(?:=(?:\"[^\"]*\"|\S)*)?[ \t]+)+")
PAIR = re.compile(r"([A-Za-z_]\w*)=((?:\"(?:[^\"\\]|\\.)*\"|'[^']*'|\\.|[^\s\"'\\])*)", re.DOTALL)
JSON_PART = re.compile(rb"\\(?:u[0-9a-fA-F]{4}|.)|[^\\]+", re.DOTALL)
JSON_WORD = re.compile(rb"\"(?:[^\"\\]|\\.)*\"")


class _Instruction(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    body: NestedText
    """without comments and empty lines between its lines"""


class _Stage:
    """From one FROM to the next."""

    def __init__(self, scope: ShellScope) -> None:
        self.scope = scope
        self.entrypoint: list[list[WordPiece]] | None = None
        self.command: list[list[WordPiece]] | None = None
        self.started: list[NestedText] = []
        """the texts of CMD and ENTRYPOINT"""


def read(
    text: str, file: str, *, first_line: int = 1, indent: int = 0, complete: bool = True
) -> Source:
    """Never fails: lines that are no instruction are passed over."""
    ground = FileText(text, file, first_line=first_line, indent=indent)
    reading = ShellReading()
    scopes: dict[str, ShellScope] = {}
    stage = _Stage(ShellScope())
    for instruction in _instructions(ground):
        if instruction.name == "FROM":
            _start(stage, ground, reading)
            words = instruction.body.data.decode("utf-8", "replace").split()
            base = scopes.get(words[0].lower()) if words else None
            stage = _Stage((base or ShellScope()).layer())
            if len(words) > 2 and words[1].lower() == "as":
                scopes[words[2].lower()] = stage.scope
        else:
            _read_one(instruction, stage, ground, reading)
    _start(stage, ground, reading)
    containers = tuple(_image(stage))
    return shell.source(
        reading, file, SourceKind.DOCKERFILE, complete=complete, containers=containers
    )


def _image(stage: _Stage) -> Iterator[ContainerRun]:
    """What a container of the last stage runs, unless it is started with another command."""
    texts = [text for text in stage.started if text.data]
    if texts:
        first, last = texts[0].place(0), texts[-1].place(len(texts[-1].data) - 1)
        exec_form = any(text.data.lstrip().startswith(b"[") for text in texts)
        form = Flag(name="form", value="exec" if exec_form else "shell", place=first)
        yield ContainerRun(engine="image", options=(form,), place=first, ends=last)


# --- instructions ---------------------------------------------------------------------------------


def _instructions(ground: FileText) -> Iterator[_Instruction]:
    data = ground.data
    at = 0
    while at < len(data):
        end = _line_end(data, at)
        match = INSTRUCTION.match(data, at, end)
        if match is None or SKIPPED.fullmatch(data, at, end):
            at = end + 1
            continue
        name = match[1].decode().upper()
        end, cuts = _continued(data, at, end)
        if name in ("RUN", "COPY", "ADD"):
            end = _behind_heredocs(data, at, end)
        body = ground.whole().part(match.end(), max(end, match.end()))
        cuts = [(a - match.end(), b - match.end()) for a, b in cuts if a >= match.end()]
        yield _Instruction(name=name, body=body.without(cuts) if cuts else body)
        at = end + 1


def _line_end(data: bytes, at: int) -> int:
    end = data.find(b"\n", at)
    return len(data) if end < 0 else end


def _continued(data: bytes, at: int, end: int) -> tuple[int, list[tuple[int, int]]]:
    """Where an instruction ends, and the comments and empty lines inside it."""
    cuts: list[tuple[int, int]] = []
    while data[at:end].rstrip().endswith(b"\\") and end < len(data):
        at, end = end + 1, _line_end(data, end + 1)
        while SKIPPED.fullmatch(data, at, end) and end < len(data):
            cuts.append((at, end + 1))
            at, end = end + 1, _line_end(data, end + 1)
    return end, cuts


def _behind_heredocs(data: bytes, at: int, end: int) -> int:
    """A document that is never closed is none: the instruction ends with its line."""
    for mark in [match[2] for match in HEREDOC.finditer(data, at, end)]:
        closing = re.compile(rb"^[ \t]*" + re.escape(mark) + rb"[ \t]*$", re.MULTILINE)
        found = closing.search(data, min(end + 1, len(data)), end + LONGEST_DOCUMENT)
        if found is None:
            return end
        end = found.end()
    return end


# --- what they say --------------------------------------------------------------------------------


def _read_one(
    instruction: _Instruction, stage: _Stage, ground: FileText, reading: ShellReading
) -> None:
    name, body = instruction.name, instruction.body
    if name == "ONBUILD" and (match := INSTRUCTION.match(body.data)):
        rest = body.part(match.end(), len(body.data))
        inner = _Instruction(name=match[1].decode().upper(), body=rest)
        if inner.name != "ONBUILD":
            _read_one(inner, stage, ground, reading)
    elif name == "ENV":
        for setting in _settings(body):
            index = reading.setting(setting)
            stage.scope.set(setting.name, _variable(setting, index))
    elif name in ("RUN", "CMD", "ENTRYPOINT"):
        stage.started += [body] if name != "RUN" else []
        options = OWN_OPTION.match(body.data) if name == "RUN" else None
        body = body.part(options.end() if options else 0, len(body.data))
        words = _exec_form(body)
        if words is None:
            _shell_form(body, stage.scope, reading)
        elif name == "RUN":
            shell.run(words, ground, reading, stage.scope.layer())
        elif name == "CMD":
            stage.command = words
        else:
            stage.entrypoint = words


def _shell_form(body: NestedText, scope: ShellScope, reading: ShellReading) -> None:
    heredoc = HEREDOC.match(body.data)
    if heredoc and b"\n" in body.data:  # RUN <<EOF: the document itself is the script
        start = body.data.index(b"\n") + 1
        end = body.data.rstrip().rfind(heredoc[2])
        body = body.part(start, max(start, end))
    shell.walk(body, reading, scope.layer())


def _start(stage: _Stage, ground: FileText, reading: ShellReading) -> None:
    """The command of a container: ENTRYPOINT with CMD as its arguments."""
    words = [*(stage.entrypoint or []), *(stage.command or [])]
    shell.run(words, ground, reading, stage.scope.layer())


def _exec_form(body: NestedText) -> list[list[WordPiece]] | None:
    """A JSON list of strings; None where it is none: then a shell reads it."""
    data = body.data.strip()
    if not data.startswith(b"["):
        return None
    try:
        texts = json.loads(data.replace(b"\\\n", b"  "))
    except (ValueError, RecursionError):
        return None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return None
    matches = list(JSON_WORD.finditer(body.data))
    if len(matches) != len(texts):
        return None
    return [_word(body, match.start() + 1, match.end() - 1) for match in matches]


def _word(body: NestedText, start: int, end: int) -> list[WordPiece]:
    """A JSON string; each escape is a separate part, so that places stay exact."""
    data = grammar.masked(body.data)
    atoms: list[WordPiece] = []
    known = not re.fullmatch(rb"\$\{?\w+\}?", data[start:end])
    for match in JSON_PART.finditer(data, start, end):
        text = match[0].decode("utf-8", "replace")
        exact = not text.startswith("\\")
        meant = text if exact else _escape(text)
        at = body.origin(match.start())
        atoms.append(
            WordPiece(meant, known=known and not grammar.elided(meant), at=at, exact=exact)
        )
    return atoms or [WordPiece("", known=True, at=body.origin(start))]


def _escape(text: str) -> str:
    try:
        return str(json.loads(f'"{text}"'))
    except ValueError:
        return text


def _settings(body: NestedText) -> Iterator[SourceSetting]:
    """`ENV A=1 B="x y"`, and the old `ENV A some words`."""
    text = body.data.replace(b"\\\n", b"  ").decode("utf-8", "replace")
    first = text.split(None, 1)[0] if text.strip() else ""
    if "=" not in first:
        value = text[text.find(first) + len(first) :].strip() if first else ""
        if re.fullmatch(r"[A-Za-z_]\w*", first) and value:
            yield _setting(first, value, body, text.find(first))
        return
    for match in PAIR.finditer(text):
        yield _setting(match[1], match[2], body, match.start())


def _setting(name: str, written: str, body: NestedText, at: int) -> SourceSetting:
    value = re.sub(r"\\(.)", r"\1", re.sub(r"(?<!\\)[\"']", "", written))
    masked = grammar.masked(value.encode("utf-8", "replace")).decode("utf-8", "replace")
    byte = at if body.data.isascii() else len(body.data.decode("utf-8", "replace")[:at].encode())
    return SourceSetting(
        name=name,
        value=value,
        place=body.place(byte),
        known="$" not in value and not grammar.elided(masked),
        written=written,
        by="ENV",
    )


def _variable(setting: SourceSetting, index: int) -> ShellVariable:
    atom = WordPiece(setting.value, known=setting.known, at=0, exact=False)
    return ShellVariable(
        elements=((atom,),), sure=setting.known, setting=setting, indexes=(index,), exported=True
    )
