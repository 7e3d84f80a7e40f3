"""Lines of a log -> Python exceptions, whole or cut, and what C++ threw.

In an interleaved log the lines after `Traceback` may be of any rank: those count whose prefix
names the same writer. Python's logging puts its prefix before the first line of a record only, so
lines without any prefix that follow at once are its own too. An exception's message continues over
several lines (NCCL's and CUDA's do) until something else begins.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.analysis.checkpoints import torch_advice
from holdfast.analysis.scene.scene import Frame
from holdfast.explain.read.line_prefix import PLAIN, Grammar, Head, head

FRAMES = 40
MESSAGE = 2_000
"""characters of a message that are kept"""
MORE_LINES = 14
"""of a message that continues on the lines below"""
INNER_LINES = 200
"""of one that holds the traceback of a DataLoader worker"""

_KIND = r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\([\w.]+\))?"
_FRAME = re.compile(r'\s*File "(?P<file>[^"]*)", line (?P<line>\d{1,9})(?:, in (?P<function>.+))?')
_END = re.compile(rf"(?P<kind>{_KIND})(?:: ?(?P<text>.*))?$")
_OTHER_LANGUAGE = re.compile(r"\s+at \S")
"""the next line, where the stack of Java, JavaScript or C# follows"""
_PRINTED = re.compile(
    r"(?:E +|\S+: )?"
    r"(?P<kind>(?:\w{1,80}\.){0,12}[A-Z]\w{0,80}(?:Error|Exception|Interrupt)(?:\(\w+\))?)"
    r"(?:: ?(?P<text>.*))?$"
)
_THROWN = re.compile(r"terminate called after throwing an instance of '(?P<kind>[^']+)'")
_WHAT = re.compile(r"\s*what\(\): *(?P<text>.*)")
_BEGIN = re.compile(r"(?P<before>.*?)Traceback \(most recent call last\)")
_CHAIN = re.compile(r"During handling of the above exception|The above exception was the direct")
_TREE = re.compile(r" *[|+] ?")
"""what an exception group draws before its lines"""
_NEW_MESSAGE = frozenset({"glog", "elastic", "date", "nccl", "level", "place", "syslog", "nemo"})
_OTHER_THING = re.compile(
    r"Traceback \(most|```|-{20,}|-{10}End global rank|={20,}|\[\w*rank|terminate called"
    r"|Fatal Python error|srun: |slurmstepd|Root Cause|\S+ FAILED$|\s*$"
    r"|(?i:\W{0,3}(?:global[ _]|train(?:ing)?[ _])?(?:step|epoch|iter(?:ation)?)s?\W{1,4}\d)"
)


_INNER = re.compile(
    r"Original Traceback \(most recent|Traceback \(most recent call last\): \(RANK \d"
)
"""the message of an exception that torch raises again goes on with its traceback"""
_INNER_MARKS = ("Original Traceback (", " last): (RANK ")


_head = functools.lru_cache(maxsize=256)(head)
"""In an interleaved log the same lines follow dozens of exceptions."""


class ParsedException(msgspec.Struct, frozen=True, kw_only=True):
    """An exception as its lines show it."""

    kind: str
    text: str
    frames: tuple[Frame, ...] = ()
    """innermost first"""
    ends: int = 0
    """which of the following lines names it, from 1; 0: the line itself"""
    lines: int = 0
    """how many of the following lines belong to it"""
    bare: bool = False
    """these have no prefix, although the first one has"""


def traceback(
    first: Head, following: Sequence[str], grammar: Grammar = PLAIN
) -> ParsedException | None:
    """From a line that holds 'Traceback (most recent call last)'; None where it is cut."""
    begin = _BEGIN.search(first.text)
    if begin is None:
        return None
    before = begin["before"]
    tree = bool(_TREE.match(before)) and before.strip(" ") != ""
    # torchrun's summary ('  traceback : Traceback …') indents what follows by two.
    indent = 2 if before.strip() == "traceback :" else len(before)
    frames: list[Frame] = []
    for number, text in _same_writer(first, following, grammar):
        line = (
            _TREE.sub("", text, count=1)
            if tree
            else text[indent:]
            if not text[:indent].strip()
            else text
        )
        if frame := _FRAME.match(line):
            frames.append(_frame(frame))
        elif line[:1].isspace() or not line:
            continue
        elif _CHAIN.match(line) or _BEGIN.search(line):
            return None
        elif end := _END.match(line):
            message, last = _message(end["text"] or "", first, following, number, grammar, indent)
            shown = tuple(reversed(frames[-FRAMES:]))
            return ParsedException(
                kind=end["kind"],
                text=message,
                frames=shown,
                ends=number,
                lines=last,
                bare=_goes_on_bare(first, following, grammar),
            )
        else:
            return None
    return None


def printed(
    first: Head, following: Sequence[str], grammar: Grammar = PLAIN, before: Sequence[str] = ()
) -> ParsedException | None:
    """From a line that names an exception, its traceback cut away or never shown. Python prints a
    script that it cannot compile without one: only the place, in the lines before."""
    found = _PRINTED.match(first.text.lstrip())
    if found is None or any(map(_OTHER_LANGUAGE.match, following[:1])):
        return None
    message, last = _message(found["text"] or "", first, following, 0, grammar, 0)
    places = [_FRAME.fullmatch(head(raw, grammar).text.rstrip()) for raw in before]
    frames = [_frame(place) for place in places if place and not place["function"]]
    return ParsedException(kind=found["kind"], text=message, lines=last, frames=tuple(frames[-1:]))


def thrown(
    first: Head, following: Sequence[str], grammar: Grammar = PLAIN
) -> ParsedException | None:
    """From 'terminate called …': an uncaught C++ exception."""
    found = _THROWN.search(first.text)
    if found is None:
        text = "terminate called without an active exception"
        return ParsedException(kind="terminate", text=text) if text in first.text else None
    for number, text in _same_writer(first, following[:4], grammar):
        if what := _WHAT.match(text):
            message, last = _message(what["text"], first, following, number, grammar, 0)
            return ParsedException(kind=found["kind"], text=message, lines=last)
    return ParsedException(kind=found["kind"], text="")


def error_file(data: bytes) -> ParsedException | None:
    """torchrun's error.json; None when it is something else. Never raises."""
    try:
        document = json.loads(data)
        message = document["message"]
        if isinstance(message, str):
            return _of_message(message)
        extra = message.get("extraInfo") or {}
        whole = extra.get("py_callstack") or ""
        lines = str(whole).splitlines()
        for number, line in enumerate(lines):
            if _BEGIN.search(line) and (told := traceback(head(line), lines[number + 1 :])):
                return msgspec.structs.replace(told, ends=0, lines=0)
        return _of_message(str(message.get("message", "")))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _of_message(message: str) -> ParsedException | None:
    """'ValueError: no such file', as torchrun writes it; a bare sentence has no kind."""
    found = _PRINTED.match(message.partition("\n")[0])
    if not message:
        return None
    kind = found["kind"] if found else "Exception"
    return ParsedException(
        kind=kind,
        text=torch_advice.without(message.partition(": ")[2] if found else message)[:MESSAGE],
    )


def _frame(found: re.Match[str]) -> Frame:
    return Frame(function=found["function"] or "", file=found["file"], line=int(found["line"]))


def _same_writer(
    first: Head, following: Sequence[str], grammar: Grammar
) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of the lines that come from where the first one came from."""
    bare = _goes_on_bare(first, following, grammar)
    for number, raw in enumerate(following, start=1):
        other = _head(raw, grammar)
        if _is_same(first, other, bare=bare):
            yield number, other.text


def _goes_on_bare(first: Head, following: Sequence[str], grammar: Grammar) -> bool:
    """A record of a logger: its first line has a prefix, the traceback below has none."""
    second = _head(following[0], grammar) if first.grammar and following else None
    return second is not None and not second.grammar and _FRAME.match(second.text) is not None


def _is_same(first: Head, other: Head, *, bare: bool) -> bool:
    return _identity(other) == _identity(first) or (bare and not other.grammar)


def _identity(one: Head) -> tuple[object, ...]:
    return one.rank, one.local_rank, one.host, one.pid


def _message(
    text: str, first: Head, following: Sequence[str], start: int, grammar: Grammar, indent: int
) -> tuple[str, int]:
    """The message with the lines that continue it, and the number of its last line."""
    parts, last, most = [text], start, MORE_LINES
    bare = _goes_on_bare(first, following, grammar)
    window = following[start : start + INNER_LINES]
    if not any(mark in raw for raw in window for mark in _INNER_MARKS):
        window = window[:MORE_LINES]  # to take a line apart costs far more than to search it
    for number, raw in enumerate(window, start=start + 1):
        other = _head(raw, grammar)
        if not _is_same(first, other, bare=bare):
            continue
        inner = _INNER.match(other.text) is not None
        most = INNER_LINES if inner else most
        new = _NEW_MESSAGE.intersection(other.grammar.split()) - set(first.grammar.split())
        ends = not inner and (_OTHER_THING.match(other.text) or _CHAIN.match(other.text))
        if new or ends or number - start > most:
            break
        parts.append(other.text[indent:] if not other.text[:indent].strip() else other.text)
        last = number
    return torch_advice.without(_clipped("\n".join(parts))), last


def _clipped(message: str) -> str:
    """Beginning and end."""
    if len(message) <= MESSAGE:
        return message
    return f"{message[: MESSAGE // 2]}\n…\n{message[-MESSAGE // 2 :]}"
