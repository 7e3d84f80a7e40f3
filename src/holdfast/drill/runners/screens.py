"""What launchers print, each line with the time at which it came."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO, NamedTuple

from holdfast.analysis.drill.outcome import Spoken
from holdfast.drill.layout import JobFolder

NAMES_A_FAULT = re.compile(
    r"\b(?P<how>error|warning|notice|verdict)\[(?P<code>HOLD\d{3})\] (?P<slug>[a-z0-9-]+): "
    r"(?P<reason>.*)"
)
_WORD = re.compile(r"[\w.-]*\w")
LONGEST = 4000
"""characters of a line that are kept"""


class ScreenLine(NamedTuple):
    t: float
    text: str


def keep(stream: IO[str], file: Path) -> threading.Thread:
    """Copies what a launcher prints into a file, with times, until it ends."""

    def copy() -> None:
        with file.open("a", encoding="utf-8") as kept:
            for line in stream:
                kept.write(f"{time.time():.3f} {line.rstrip()[:LONGEST]}\n")
                kept.flush()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread


def lines(folder: JobFolder) -> Iterator[ScreenLine]:
    for file in sorted(folder.screens.glob("*.txt")):
        yield from _lines(file)


def _lines(file: Path) -> Iterator[ScreenLine]:
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        at, _, text = line.partition(" ")
        yield ScreenLine(float(at), text)


def named(folder: JobFolder, *, known: Collection[str] = ()) -> Iterator[Spoken]:
    """Lines of holdfast that name a fault by its code: `error[HOLD205] peer-unreachable: …`. One
    that names no host is about the host that it was shown on. `known`: codes to leave out; by
    these, since a notice of rank-stuck is shown as `waiting`."""
    files = sorted(folder.screens.glob("*.txt"))
    hosts = {file.stem for file in files}
    for file in files:
        for line in _lines(file):
            found = NAMES_A_FAULT.search(line.text)
            if found and found["code"] not in known:
                meant = hosts & set(_WORD.findall(found["reason"]))
                yield Spoken(
                    t=line.t,
                    kind="verdict" if found["how"] in ("error", "verdict") else "notice",
                    slug=found["slug"],
                    hosts=tuple(sorted(meant or {file.stem})),
                    reason=found["reason"],
                )
