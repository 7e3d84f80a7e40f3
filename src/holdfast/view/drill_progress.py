"""How far a drill is: the block of lines that a terminal shows while it runs, and the time left."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from holdfast import text
from holdfast.analysis.drill.outcome import DrillRow
from holdfast.analysis.drill.rehearsal import JobShape
from holdfast.findings import Status
from holdfast.view.drill_table import Table, seconds
from holdfast.view.text import COLOURS, PLAIN, harmless

AS_A_GUESS = 2.0
"""times the reference: what a drill takes, before one has been seen"""
BAR = 24
FEWEST_ROWS = 3
"""finished drills that stay in sight on the smallest terminal"""


class DrillProgress(msgspec.Struct, kw_only=True):
    names: Sequence[str] = ()
    rows: list[DrillRow] = msgspec.field(default_factory=list)
    running: str = ""
    what: str = ""
    since: float = 0.0
    """when the running one began, in the clock of `now`"""
    reference: float = 0.0
    """seconds that it took; 0: not known yet"""

    @property
    def left(self) -> int:
        return max(len(self.names) - len(self.rows), 0)


def time_left(
    reference: float, taken: Sequence[float], *, left: int, running_for: float = 0.0
) -> float:
    """Seconds until the last of `left` drills is over, of which one has run for `running_for`.

    `taken`: by those that were tried; the guess counts as one of them, less and less.
    """
    if left <= 0:
        return 0.0
    each = (sum(taken) + AS_A_GUESS * reference) / (len(taken) + 1)
    return left * each - min(running_for, each)


def about(left: float) -> str:
    """Rounded, since it is a guess: 'about 40 s', 'about 3 min', 'about 2.5 h'."""
    if left < 5:
        return "a few seconds"
    if left < 95:
        return f"about {round(left / 5) * 5} s"
    return f"about {left / 60:.0f} min" if left < 5400 else f"about {left / 3600:.1f} h"


def block(
    progress: DrillProgress, *, columns: int, lines: int, now: float, colour: bool
) -> list[str]:
    """Finished drills with their figures, the running one, what follows, and how long it takes.

    At most `lines` of them; finished ones go out of sight first.
    """
    table = Table(progress.names, columns)
    colour = colour and columns >= table.width
    below = [*_running(progress, table, now, colour=colour), *_next(progress, table)]
    below.append(_summary(progress, now))
    room = max(lines - len(below) - 3, FEWEST_ROWS)  # heads, and a line for those out of sight
    shown = progress.rows[-room:]
    hidden = len(progress.rows) - len(shown)
    rows = [table.row(row, colour=colour) for row in shown]
    heads = table.heads() if rows else []
    above = [f"… {text.counted(hidden, 'drill')} more"] if hidden else []
    drawn = [*heads, *above, *rows, *below]
    return drawn if columns >= table.width else [text.shorten(line, columns) for line in drawn]


def _running(progress: DrillProgress, table: Table, now: float, *, colour: bool) -> list[str]:
    if not progress.running:
        return []
    what = f"{progress.what}, {text.duration(max(now - progress.since, 0.0))}"
    line = table.beside(progress.running, what)
    return [f"{COLOURS[Status.NOTE]}{line}{PLAIN}" if colour else line]


def _next(progress: DrillProgress, table: Table) -> list[str]:
    seen = {row.drill for row in progress.rows} | {progress.running}
    waiting = [harmless(name) for name in progress.names if name not in seen]
    if not waiting:
        return []
    return [text.shorten(f"next: {', '.join(waiting)}", table.width - 1)]


def _summary(progress: DrillProgress, now: float) -> str:
    """'[######------] 5 of 14, 1 broken, about 3 min left'."""
    done, total = len(progress.rows), len(progress.names)
    full = BAR * done // total if total else BAR
    broken = sum(row.status == "broken" for row in progress.rows)
    parts = [f"[{'#' * full}{'-' * (BAR - full)}] {done} of {text.counted(total, 'drill')}"]
    parts += [f"{broken} broken"] if broken else []
    if progress.reference and progress.left:
        taken = [row.seconds for row in progress.rows if row.status != "skipped"]
        running_for = now - progress.since if progress.running else 0.0
        estimate = time_left(progress.reference, taken, left=progress.left, running_for=running_for)
        parts.append(f"{about(estimate)} left")
    return ", ".join(parts)


# --- in a pipe: a line for each -------------------------------------------------------------------


def of_reference(job: JobShape, took: float) -> str:
    where = f" on {len(job.hosts)} lab hosts" if len(job.hosts) > 1 else ""
    saves = (
        f"checkpoints after {_steps(job.saved_after)}" if job.saved_after else "no checkpoint seen"
    )
    patience = f"; patience {text.exact_duration(job.patience)}" * (job.runner == "holdfast")
    return (
        f"reference: {text.counted(job.steps, 'step')} of {text.counted(job.ranks, 'rank')}{where} "
        f"in {seconds(took)}, {saves}{patience}"
    )


def _steps(saved: Sequence[int]) -> str:
    """'steps 10, 20, 30 …'."""
    shown = ", ".join(map(str, saved[:3]))
    return f"{'steps' if len(saved) > 1 else 'step'} {shown}{' …' if len(saved) > 3 else ''}"


def of_row(row: DrillRow) -> str:
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
    promises = ", ".join(dict.fromkeys(one.promise for one in row.broken))
    head = f"BROKEN ({promises})" if row.status == "broken" else row.status
    return f"{head}: {', '.join(part for part in said if part)}"


def _compared(row: DrillRow) -> str:
    """'data, loss and weights identical'; 'data identical, loss and weights differs'."""
    by_word: dict[str, list[str]] = {}
    for name, word in (("data", row.data), ("loss", row.loss), ("weights", row.weights)):
        by_word.setdefault(word, []).append(name)
    return ", ".join(f"{text.names(names)} {_verb(word, names)}" for word, names in by_word.items())


def _verb(word: str, names: Sequence[str]) -> str:
    plural = len(names) > 1 or names == ["weights"]
    return "differ" if word == "differs" and plural else word
