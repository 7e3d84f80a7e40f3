"""The report of a drill: one HTML file that needs nothing else, to look at rather than to read."""

from __future__ import annotations

import time
from pathlib import Path

from holdfast import text
from holdfast.analysis.drill.causes import BrokenByCause, broken_by_cause
from holdfast.analysis.drill.outcome import Comparison, DrillReport, DrillRow
from holdfast.view import drill_curve, drill_timeline
from holdfast.view.drill_style import STYLE
from holdfast.view.drill_table import (
    NONE,
    command_line,
    counts,
    last_line,
    naming,
    reason_of,
    seconds,
)
from holdfast.view.svg import element, escaped, text_of
from holdfast.view.text import harmless

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""whatever a name or message may bring along: the browser loads and runs nothing"""
HEADS = (
    "drill", "noticed after", "named", "recovered after", "steps repeated", "data", "loss",
    "weights", "left behind", "promise",
)  # fmt: skip


def page(report: DrillReport) -> str:
    """The whole document."""
    title = f"drill of {' '.join(report.command)}"
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"{text_of('title', title)}<style>{STYLE}</style>"
    )
    body = "".join(
        (_summary(report), _table(report), _broken(report), _timelines(report), _curves(report),
         _not_tried(report), _facts(report))
    )  # fmt: skip
    if report.folder:  # it is to be sent to a colleague, with that folder or without it
        body = body.replace(f"{escaped(report.folder)}/", "")
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _section(title: str, *inside: str) -> str:
    """'' where there is nothing in it."""
    found = "".join(inside)
    return element("section", element("h2", title) + found) + "\n" if found else ""


def _badge(row: DrillRow) -> str:
    return element("span", row.status, class_=f"badge {row.status}")


# --- the first screen ----------------------------------------------------------------------------


def _summary(report: DrillReport) -> str:
    found = counts(report)
    tried = len(report.rows) - found["skipped"]
    verdict = (
        f"{found['broken']} of {text.counted(tried, 'drill')} broke a promise"
        if found["broken"]
        else f"{found['kept']} of {text.counted(tried, 'drill')} kept every promise"
    )
    tiles = [(status, str(count), status) for status, count in found.items() if count]
    hosts = f" on {text.counted(report.hosts, 'lab host')}" if report.hosts > 1 else ""
    tiles += [
        ("", str(report.ranks), f"{'rank' if report.ranks == 1 else 'ranks'}{hosts}"),
        ("", str(report.steps), "steps"),
        ("", seconds(report.reference_seconds), "undisturbed"),
        ("", seconds(report.seconds), "in all"),
    ]
    drawn = "".join(
        element("li", element("b", escaped(figure)) + escaped(words), class_=f"tile {kind}".strip())
        for kind, figure, words in tiles
    )
    return element(
        "header",
        element("h1", escaped(verdict if tried else "no drill was tried"))
        + text_of("p", f"holdfast drill, {_when(report.started)}, runner: {report.runner}",
                  class_="quiet")
        + text_of("code", command_line(report), class_="command")
        + element("ul", drawn, class_="tiles"),
    )  # fmt: skip


def _when(started: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(started))


def _table(report: DrillReport) -> str:
    heads = element("tr", "".join(element("th", one, scope="col") for one in HEADS))
    rows = "".join(map(_row, report.rows))
    caption = element("caption", escaped(_caption(report)))
    drawn = element("table", caption + element("thead", heads) + element("tbody", rows))
    return _section("What happened", element("div", drawn, class_="scroll"))


def _caption(report: DrillReport) -> str:
    patience = (
        f"; patience {text.exact_duration(report.patience)}: how long a job may go without "
        "progress before holdfast acts"
        if report.patience and report.runner == "holdfast"
        else ""
    )
    bits = (
        ". This job does not repeat its own bits, so `same` means equal within the difference "
        "measured before any fault came"
        if report.repeats_itself is False
        else ""
    )
    return f"Seconds are counted from the moment of the fault{patience}{bits}."


def _row(row: DrillRow) -> str:
    name = element("th", escaped(row.drill) + _detail(row.does), scope="row")
    if row.status == "skipped":
        why = element("td", _with_commands(row.why), class_="why", colspan=len(HEADS) - 2)
        return element("tr", name + why + element("td", _badge(row)))
    cells = (
        _cell(seconds(row.noticed)),
        element("td", escaped(naming(row)) + _detail(row.named),
                class_="bad" if row.named_right is False else None),
        _cell(seconds(row.recovered)),
        _cell(NONE if row.repeated is None else str(row.repeated), kind="number"),
        *map(_compared, (row.data, row.loss, row.weights)),
        _cell(str(len(row.left)), kind="bad") if row.left else _cell("nothing"),
        element("td", _badge(row)),
    )  # fmt: skip
    return element("tr", name + "".join(cells))


def _detail(words: str) -> str:
    return text_of("span", words, class_="detail") if words else ""


def _cell(words: str, *, kind: str = "") -> str:
    return text_of("td", words, class_=kind or ("faint" if words == NONE else None))


def _compared(word: Comparison) -> str:
    return _cell(word, kind={"differs": "bad", "unknown": "faint"}.get(word, ""))


# --- what is wrong, and what to change -----------------------------------------------------------


def _broken(report: DrillReport) -> str:
    return _section("Broken promises", *map(_card, broken_by_cause(report.broken)))


def _card(cause: BrokenByCause) -> str:
    row = cause.row
    facts: list[tuple[str, str]] = []
    for one in cause.promises:
        slug = f" ({one.slug})" if one.slug else ""
        facts.append((one.promise, text_of("dd", f"{one.seen}{slug}")))
        if one.fix:
            facts.append(("change", element("dd", _with_commands(one.fix), class_="help")))
    facts += [("left", text_of("dd", one, class_="mono")) for one in cause.left]
    facts += [("note", text_of("dd", one)) for one in cause.remarks]
    facts += [("evidence", text_of("dd", row.folder, class_="mono"))] if row.folder else []
    listed = "".join(text_of("dt", name) + said for name, said in facts)
    name, below = row.drill, row.does
    if cause.same_in:
        name, below = cause.same_in, ", ".join(one.drill for one in cause.rows)
    head = element("h3", f"{escaped(name)} {_badge(row)}") + text_of("p", below, class_="quiet")
    return element("div", head + element("dl", listed), class_="card")


def _with_commands(sentence: str) -> str:
    """What stands between backticks is code."""
    parts = harmless(sentence).split("`")
    return "".join(text_of("code", part) if number % 2 else escaped(part)
                   for number, part in enumerate(parts))  # fmt: skip


def _not_tried(report: DrillReport) -> str:
    rows = [row for row in report.rows if row.status in ("unproven", "skipped")]
    listed = "".join(
        element("dt", f"{escaped(row.drill)} {_badge(row)}")
        + element("dd", _with_commands(reason_of(row)))
        for row in rows
    )
    return _section(
        "Not tried, or not proven", element("dl", listed, class_="facts") if rows else ""
    )


# --- pictures ------------------------------------------------------------------------------------


def _timelines(report: DrillReport) -> str:
    shown = drill_timeline.window(report.rows)
    lanes = [
        _lane(row, drawn) for row in report.rows if (drawn := drill_timeline.drawing(row, shown))
    ]
    if not lanes:
        return ""
    scale = element("div", f"<div></div>{drill_timeline.axis(shown)}", class_="lane",
                    style="border:0")  # fmt: skip
    said = (
        "Every job on one scale, the fault at 0. What came long before it, and training after all "
        "had recovered, is cut off at the edges."
    )
    return _section("Timelines", text_of("p", said, class_="quiet"), drill_timeline.legend(),
                    scale, *lanes)  # fmt: skip


def _lane(row: DrillRow, drawn: str) -> str:
    name = element(
        "div",
        element("b", escaped(row.drill)) + f" {_badge(row)}" * (row.status != "kept")
        + text_of("div", row.does, class_="does"),
    )  # fmt: skip
    return element("div", name + element("div", drawn) + _events(row), class_="lane")


def _events(row: DrillRow) -> str:
    """The same in words: for a screen reader, and to know exactly."""
    zero = drill_timeline.zero_of(row) or 0.0
    shown = row.timeline[: drill_timeline.MOST_EVENTS]
    listed = "".join(
        text_of("li", f"{drill_timeline.moment(one.t - zero)}: {one.what}") for one in shown
    )
    more = len(row.timeline) - len(shown)
    rest = element("p", escaped(f"and {more} more")) if more else ""
    events = text.counted(len(row.timeline), "event")
    return element("details", element("summary", events) + element("ol", listed) + rest)


def _curves(report: DrillReport) -> str:
    figures = "".join(
        element("figure", drawn + element("figcaption", escaped(row.drill)))
        for row in report.rows
        if (drawn := drill_curve.drawing(row, report.reference))
    )
    said = (
        "Thin line: the disturbed job, in a new colour after each restart, with a dot where it "
        "resumed. Wide grey line: the reference. Where the promise was kept, they coincide."
    )
    if not figures:
        return ""
    return _section("Loss", text_of("p", said, class_="quiet"),
                    element("div", figures, class_="curves"))  # fmt: skip


# --- the rest ------------------------------------------------------------------------------------


def _facts(report: DrillReport) -> str:
    bits = {True: "yes", False: "no", None: "could not be compared"}[report.repeats_itself]
    facts = {
        **report.versions,
        "repeats its own bits": bits,
        "writes elsewhere": f"not stopped: {report.unfenced}" if report.unfenced else "",
        "folder": "/".join(Path(report.folder).parts[-2:]),
        "in a line": last_line(report),
    }
    listed = "".join(text_of("dt", name) + text_of("dd", value) for name, value in facts.items()
                     if value)  # fmt: skip
    return _section("This drill", element("dl", listed, class_="facts"))
