"""The table of a drill, what to change for every promise that was broken, and the last line."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from holdfast import text
from holdfast.analysis.drill.causes import BrokenByCause, broken_by_cause
from holdfast.analysis.drill.outcome import Comparison, DrillReport, DrillRow
from holdfast.findings import Status
from holdfast.view.text import COLOURS, PLAIN, harmless, wrapped

NARROWEST, WIDEST = 80, 120
NONE = "-"
STATUS = {"kept": "kept", "broken": "BROKEN", "unproven": "unproven", "skipped": "skipped"}
"""how the table says it: what needs a look is seen without colour"""
_COLOUR = {
    "kept": Status.OK,
    "broken": Status.ERROR,
    "unproven": Status.WARNING,
    "skipped": Status.SKIPPED,
}
_WORST_FIRST: tuple[Comparison, ...] = ("differs", "unknown", "same", "identical")


class Column(NamedTuple):
    above: str
    head: str
    width: int
    side: str = "<"


_WIDE = (
    Column("noticed", "after", 7),
    Column("", "named", 5),
    Column("recovered", "after", 9),
    Column("steps", "repeated", 8, ">"),
    Column("", "data", 9),
    Column("", "loss", 9),
    Column("", "weights", 9),
    Column("left", "behind", 7),
    Column("", "promise", 8),
)
_NARROW = (
    Column("noticed", "after", 7),
    Column("", "named", 5),
    Column("back", "after", 7),
    Column("steps", "again", 5, ">"),
    Column("", "result", 9),  # the worst of data, loss and weights
    Column("", "left", 4),
    Column("", "promise", 8),
)


class Table:
    """Rows are drawn one by one, while the drill runs: so the widths do not depend on them."""

    def __init__(self, names: Sequence[str], width: int) -> None:
        self.width = max(NARROWEST, min(width, WIDEST))
        longest = max(map(len, (*names, "drill")))
        self._wide = self.width >= min(longest + _taken(_WIDE, "  "), WIDEST)
        self._columns: Sequence[Column] = _WIDE if self._wide else _NARROW
        self._gap = "  " if self._wide else " "
        self._name = min(longest, self.width - _taken(self._columns, self._gap))

    def heads(self) -> list[str]:
        above = self._line("", [one.above for one in self._columns])
        return [above, self._line("drill", [one.head for one in self._columns])]

    def row(self, row: DrillRow, *, colour: bool = False) -> str:
        line = self._line(name_of(row.drill), [*self._cells(row), STATUS[row.status]])
        if not colour:
            return line
        said = STATUS[row.status]
        return f"{line.removesuffix(said)}{COLOURS[_COLOUR[row.status]]}{said}{PLAIN}"

    def beside(self, name: str, what: str) -> str:
        """A row with words in place of figures: what happens now."""
        return text.shorten(f"{name_of(name):<{self._name}}  {harmless(what)}", self.width)

    def _cells(self, row: DrillRow) -> list[str]:
        if row.status == "skipped":
            return [""] * (len(self._columns) - 1)
        compared = (row.data, row.loss, row.weights)
        return [
            seconds(row.noticed),
            naming(row).upper() if row.named and row.named_right is False else naming(row),
            seconds(row.recovered),
            NONE if row.repeated is None else str(row.repeated),
            *(compared if self._wide else (worst(compared),)),
            str(len(row.left)) if row.left else ("nothing" if self._wide else "none"),
        ]

    def _line(self, name: str, cells: Sequence[str]) -> str:
        parts = [
            f"{cell:{column.side}{column.width}}"
            for cell, column in zip(cells, self._columns, strict=True)
        ]
        first = f"{text.shorten(name, self._name):<{self._name}}"
        return self._gap.join([first, *parts]).rstrip()


def _taken(columns: Sequence[Column], gap: str) -> int:
    return sum(one.width + len(gap) for one in columns)


def name_of(drill: str) -> str:
    return harmless(drill)


def naming(row: DrillRow) -> str:
    """'right', 'wrong', 'never'; '-' where no name was to be expected."""
    if row.named_right is None:
        return NONE
    return "right" if row.named_right else "wrong" if row.named else "never"


def worst(compared: Sequence[Comparison]) -> Comparison:
    return min(compared, key=_WORST_FIRST.index)


def seconds(value: float | None) -> str:
    """'40 ms', '4.1 s', '23 s', '2.5 min'; '-' where there is none."""
    if value is None:
        return NONE
    if value < 0.0995:
        return f"{value * 1000:.0f} ms"
    if value < 99.5:
        return f"{value:.1f} s" if value < 9.95 else f"{value:.0f} s"
    return f"{value / 60:.1f} min"


# --- the end -------------------------------------------------------------------------------------


def whole(report: DrillReport, *, width: int, colour: bool = False) -> str:
    """Everything that is said at the end, the table first."""
    table = Table([row.drill for row in report.rows], width)
    lines = [*table.heads(), *(table.row(row, colour=colour) for row in report.rows)]
    paragraphs = ["\n".join(lines), *_remarks(report, table.width)]
    paragraphs += [
        _broken(one, table.width, colour=colour) for one in broken_by_cause(report.broken)
    ]
    paragraphs += _by_reason(report, "unproven", table.width)
    paragraphs += _by_reason(report, "skipped", table.width)
    return "\n\n".join([*paragraphs, last_line(report)])


def _remarks(report: DrillReport, width: int) -> list[str]:
    if report.repeats_itself is not False:
        return []
    said = (
        "This job does not repeat its own bits: undisturbed parts differed from the reference "
        "before any fault came. `same` means equal within the difference measured there."
    )
    return [wrapped(said, width, rest="")]


def _broken(cause: BrokenByCause, width: int, *, colour: bool) -> str:
    head, row = "broken", cause.row
    shown = f"{COLOURS[Status.ERROR]}{head}{PLAIN}" if colour else head
    lines = [f"{shown} {name_of(row.drill)}: {harmless(row.does)}"]
    if cause.same_in:
        names = ", ".join(name_of(one.drill) for one in cause.rows)
        lines = wrapped(f"broken, {cause.same_in}: {names}", width, rest=" " * 7).splitlines()
        lines[0] = lines[0].replace(head, shown, 1)
    for broken in cause.promises:
        slug = f" ({harmless(broken.slug)})" if broken.slug else ""
        lines.append(wrapped(f"  {broken.promise:<8} {broken.seen}{slug}", width, rest=" " * 11))
        if broken.fix:
            lines.append(wrapped(f"  help:    {broken.fix}", width, rest=" " * 11))
    lines += [f"  left     {harmless(one)}" for one in cause.left]
    lines += [wrapped(f"  note     {one}", width, rest=" " * 11) for one in cause.remarks]
    if row.folder:
        lines.append(f"  evidence {harmless(row.folder)}")
    return "\n".join(lines)


def _by_reason(report: DrillReport, status: str, width: int) -> list[str]:
    """One line for each reason, with all drills that have it."""
    reasons: dict[str, list[str]] = {}
    for row in report.rows:
        if row.status == status:
            reasons.setdefault(reason_of(row), []).append(name_of(row.drill))
    lines = [
        wrapped(f"{status} {', '.join(names)}: {why}", width, rest="  ")
        for why, names in reasons.items()
    ]
    return ["\n".join(lines)] if lines else []


def reason_of(row: DrillRow) -> str:
    """Why it was skipped, or what could not be checked."""
    return row.why or "; ".join(row.unchecked)


def command_line(report: DrillReport) -> str:
    """As it can be typed again; which faults were asked for is not in it."""
    hosts = ["--hosts", str(report.hosts)] if report.hosts > 1 else []
    runner = ["--runner", report.runner] if report.runner != "holdfast" else []
    words = map(harmless, (*hosts, *runner, *report.command))
    return f"holdfast drill {shlex.join(words)}"


def counts(report: DrillReport) -> dict[str, int]:
    found = dict.fromkeys(STATUS, 0)
    for row in report.rows:
        found[row.status] += 1
    return found


def last_line(report: DrillReport) -> str:
    """'12 of 14 drills kept every promise, 3 skipped, in 4 min; report: …'."""
    found = counts(report)
    tried = len(report.rows) - found["skipped"]
    kept = f"{found['kept']} of {text.counted(tried, 'drill')} kept every promise"
    parts = [kept if tried else "no drill was tried"]
    parts += [f"{found[one]} {one}" for one in ("broken", "unproven", "skipped") if found[one]]
    where = f"; report: {harmless(report.page)}" if report.page else ""
    return f"{', '.join(parts)}, in {seconds(report.seconds)}{where}"
