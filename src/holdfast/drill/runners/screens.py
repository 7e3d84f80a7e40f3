"""What launchers print, each line with the time at which it came."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from holdfast.drill.layout import JobFolder

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
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            at, _, text = line.partition(" ")
            yield ScreenLine(float(at), text)
