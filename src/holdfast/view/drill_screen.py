"""A drill while it runs: a live table on a terminal, a line for each begin and end in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TextIO

from holdfast import text
from holdfast.analysis.drill.outcome import DrillReport, DrillRow
from holdfast.analysis.drill.rehearsal import JobShape
from holdfast.view import drill_table, terminal
from holdfast.view.drill_table import seconds
from holdfast.view.text import harmless

PREFIX = "holdfast> "
REFERENCE = "reference"
"""the name of the undisturbed job, for `running`"""
PATIENCE = 1.0
"""seconds that a terminal which takes nothing (Ctrl-S) is waited for"""
TICK = 0.5
"""seconds between two drawings, so that the time is seen to pass"""
AS_A_GUESS = 2.0
"""times the reference: what a drill takes, before one has been seen"""


# --- what to say: pure ---------------------------------------------------------------------------


def time_left(
    reference: float, taken: Sequence[float], *, left: int, running_for: float = 0.0
) -> float:
    """Seconds until the last of `left` drills is over, of which one has run for `running_for`.

    `taken`: by those that were tried; the guess counts as one of them, less and less.
    """
    each = (sum(taken) + AS_A_GUESS * reference) / (len(taken) + 1)
    return max(left * each - min(running_for, each), 0.0) if left else 0.0


def of_reference(job: JobShape, took: float) -> str:
    where = f" on {len(job.hosts)} lab hosts" if len(job.hosts) > 1 else ""
    saves = (
        f"checkpoints after {_steps(job.saved_after)}" if job.saved_after else "no checkpoint seen"
    )
    return (
        f"reference: {text.counted(job.steps, 'step')} of {text.counted(job.ranks, 'rank')}{where} "
        f"in {seconds(took)}, {saves}; patience {seconds(job.patience)}"
    )


def _steps(saved: Sequence[int]) -> str:
    """'steps 10, 20, 30 …'."""
    shown = ", ".join(map(str, saved[:3]))
    return f"{'steps' if len(saved) > 1 else 'step'} {shown}{' …' if len(saved) > 3 else ''}"


def in_a_line(row: DrillRow) -> str:
    """A finished drill in a sentence."""
    if row.status == "skipped":
        return f"skipped: {row.why}"
    said = [
        f"noticed after {seconds(row.noticed)}" if row.noticed is not None else "",
        f"named {row.named}{' (wrong)' * (row.named_right is False)}" if row.named else "",
        f"recovered after {seconds(row.recovered)}" if row.recovered is not None else "",
        f"{text.counted(row.repeated, 'step')} repeated" if row.repeated is not None else "",
        _compared(row),
    ]
    head = "kept" if row.status == "kept" else f"BROKEN ({_promises(row)})"
    return f"{head}: {', '.join(part for part in said if part)}"


def _promises(row: DrillRow) -> str:
    return ", ".join(dict.fromkeys(one.promise for one in row.broken))


def _compared(row: DrillRow) -> str:
    """'data, loss and weights identical'; 'data identical, loss differs'."""
    by_word: dict[str, list[str]] = {}
    for name, word in (("data", row.data), ("loss", row.loss), ("weights", row.weights)):
        by_word.setdefault(word, []).append(name)
    return ", ".join(f"{text.names(names)} {word}" for word, names in by_word.items())


# --- saying it -----------------------------------------------------------------------------------


class DrillScreen:
    """Narration on `stream`; the table at the end goes to `answer`, where that is given."""

    def __init__(
        self,
        stream: TextIO,
        answer: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._answer, self._clock = stream, answer, clock
        self._names: Sequence[str] = ()
        self._now = ""
        """the drill that runs"""
        self._done = 0

    def begin(self, names: Sequence[str]) -> None:
        """Before anything runs: the drills, in their order."""
        self._names = names
        self.say(f"an undisturbed reference, then {text.counted(len(names), 'drill')}")

    def reference(self, job: JobShape, took: float) -> None:
        """It has run, or was read from another drill."""
        self.say(of_reference(job, took))

    def running(self, name: str, what: str) -> None:
        """What happens now in that drill (or REFERENCE): 'starting 4 ranks', 'step 12 of 60'."""
        if name == self._now:
            return
        self._now = name
        of = "" if name == REFERENCE else f"drill {self._done + 1} of {len(self._names)}, "
        self.say(f"{of}{name}: {what}")

    def row(self, row: DrillRow) -> None:
        """A drill is over, or was skipped."""
        self._done += 1
        self.say(f"drill {self._done} of {len(self._names)}, {row.drill}: {in_a_line(row)}")

    def say(self, line: str) -> None:
        """A remark that stays."""
        terminal.put(self._stream, f"{PREFIX}{harmless(line)}\n", patience=PATIENCE)

    def end(self, report: DrillReport) -> None:
        """All drills are over."""
        self.close()
        if self._answer:
            width = terminal.size(self._stream).columns
            self._answer(drill_table.whole(report, width=width))

    def close(self) -> None:
        """Leaves the terminal with a clean line, whatever happened."""
