"""A drill while it runs: a live table on a terminal, a line for each begin and end in a pipe."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from holdfast import text
from holdfast.analysis.drill import choose
from holdfast.analysis.drill.outcome import DrillReport, DrillRow
from holdfast.analysis.drill.rehearsal import JobShape
from holdfast.view import drill_progress, drill_table, terminal
from holdfast.view.drill_progress import DrillProgress
from holdfast.view.text import harmless, wants_colour

PREFIX = "holdfast> "
REFERENCE = "reference"
"""the name of the undisturbed job, for `running`"""
PATIENCE = 1.0
"""seconds that a terminal which takes nothing (Ctrl-S) is waited for"""
TICK = 0.5
"""seconds between two drawings, so that time is seen to pass"""


class DrillScreen:
    """Narration on `stream`; the table at the end goes to `answer`, where that is given.

    On a terminal everything that can be rewritten is in one block at the bottom, drawn again twice
    a second; what `say` says stays above it.
    """

    def __init__(
        self,
        stream: TextIO,
        answer: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._answer, self._clock = stream, answer, clock
        self._progress = DrillProgress()
        self._lock = threading.RLock()
        self._live = terminal.can_rewrite(stream)
        self._colour = self._live and wants_colour(stream)
        self._height = 0
        """lines of the block on the screen"""
        self._over = threading.Event()

    # --- what the conductor reports --------------------------------------------------------------

    def begin(self, names: Sequence[str], writes: str) -> None:
        """Before anything runs: the drills, in their order; where the job may write."""
        self._progress.names = names
        self.say(writes)
        self.say(f"an undisturbed reference, then {text.counted(len(names), 'drill')}")
        if self._live:
            threading.Thread(target=self._tick, name="drill screen", daemon=True).start()

    def reference(self, job: JobShape, took: float) -> None:
        """It has run, or was read from another drill."""
        self._progress.reference = took
        self._progress.running = ""
        self.say(drill_progress.of_reference(job, took))
        if remark := choose.remark(job):
            self.say(f"note: {remark}")

    def running(self, name: str, what: str) -> None:
        """What happens now in that drill (or REFERENCE): 'starting 4 ranks', 'step 12 of 60'."""
        with self._lock:
            began = name != self._progress.running
            if began:
                self._progress.running, self._progress.since = name, self._clock()
            self._progress.what = what
            if began and not self._live:
                self.say(f"{self._number(name)}{name}: {what}")
            self._draw()

    def row(self, row: DrillRow) -> None:
        """A drill is over, or was skipped."""
        with self._lock:
            line = f"{self._number(row.drill)}{row.drill}: {drill_progress.of_row(row)}"
            self._progress.rows.append(row)
            self._progress.running = ""
            if not self._live:
                self.say(line)
            self._draw()

    def end(self, report: DrillReport) -> None:
        """All drills are over."""
        if not self._answer:
            self.close()
            return
        with self._lock:
            self._over.set()
            self._replace("", height=0)
        width = shutil.get_terminal_size((drill_table.WIDEST, 40)).columns
        self._answer(drill_table.whole(report, width=width, colour=wants_colour(sys.stdout)))

    def close(self) -> None:
        """Leaves the terminal with a clean line, whatever happened."""
        with self._lock:
            self._over.set()
            if self._height:
                self._write("\n")
            self._height = 0

    # --- the screen ------------------------------------------------------------------------------

    def say(self, line: str) -> None:
        """A remark that stays."""
        with self._lock:
            self._replace(f"{PREFIX}{harmless(line)}\n", height=0)
            self._draw()

    def _number(self, name: str) -> str:
        if name == REFERENCE:
            return ""
        return f"drill {len(self._progress.rows) + 1} of {len(self._progress.names)}, "

    def _tick(self) -> None:
        while not self._over.wait(TICK):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if not self._live or self._over.is_set():
            return
        size = terminal.size(self._stream)
        lines = drill_progress.block(
            self._progress,
            columns=size.columns - 1,  # a line that wraps cannot be rewritten
            lines=size.lines - 1,
            now=self._clock(),
            colour=self._colour,
        )
        self._replace("\n".join(lines), height=len(lines))

    def _replace(self, words: str, *, height: int) -> None:
        """In place of the block; what is not taken leaves it as it is."""
        up = f"\033[{self._height - 1}A" if self._height > 1 else ""
        erase = f"\r{up}\033[J" if self._height else ""
        if self._write(erase + words):
            self._height = height

    def _write(self, words: str) -> bool:
        return terminal.put(self._stream, words, patience=PATIENCE)
