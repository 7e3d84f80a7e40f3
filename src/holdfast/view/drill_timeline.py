"""A drill as a bar in time: what the job did before the fault and after it, seconds on one scale.

The fault is at 0 in all of them, so that they can be compared by eye.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.analysis.drill.outcome import DrillRow, Happened, TrainedAttempt
from holdfast.view.drill_table import seconds
from holdfast.view.svg import element, escaped, text_of
from holdfast.view.text import harmless

WIDTH, HEIGHT = 900.0, 46.0
TOP, BAR = 17.0, 14.0
AXIS = 22.0
LONGEST_BEFORE = 0.4
"""of the time after the fault: what came before it is cut off there"""
SHOWN_AFTER = 1.8
"""times the longest recovery: a job that trains on for an hour would leave no room for it"""
MOST_ATTEMPTS = 40
MOST_EVENTS = 40
"""of one drill that are drawn and listed"""
KINDS = {
    "starting": "ranks start",
    "training": "training",
    "repeated": "steps repeated",
    "unnoticed": "not noticed yet",
    "down": "named, not training yet",
    "ending": "ending",
}
MARKS = {"fault": "fault", "said": "named", "resume": "resumed", "lifted": "fault taken away"}


class Segment(NamedTuple):
    kind: str
    start: float
    end: float


class Window(NamedTuple):
    """The part of time that is drawn."""

    start: float
    end: float

    def x(self, t: float) -> float:
        inside = min(max(t, self.start), self.end)
        return (inside - self.start) / ((self.end - self.start) or 1.0) * WIDTH


# --- from a row to what is drawn: pure -----------------------------------------------------------


def zero_of(row: DrillRow) -> float | None:
    """When the fault came; without one the first thing that happened."""
    first = next((one.t for one in row.timeline if one.kind == "fault"), None)
    others = [*(one.t for one in row.timeline), *(one.began for one in row.trained)]
    return first if first is not None else min(others, default=None)


def segments(row: DrillRow) -> list[Segment]:
    """Without gaps, from the first start to the end, in seconds from the fault."""
    zero = zero_of(row)
    if zero is None:
        return []
    known = [one for attempt in _attempts(row) for one in attempt]
    times = [one.t for one in row.timeline]
    if not known and not times:
        return []
    at = min([*times, *(one.start for one in known)])
    end = max([*times, *(one.end for one in known)])
    trained = max((one.end for one in known), default=zero)
    made: list[Segment] = []
    for one in known:
        if one.start > at:
            made += _gap(row, at, one.start, after=bool(made))
        made.append(one._replace(start=max(one.start, at)))
        at = max(at, one.end)
    if end > at:
        over = trained > zero or not row.timeline
        made += _tail(row, at, end) if over else _gap(row, at, end, after=True)
    return [one._replace(start=one.start - zero, end=one.end - zero) for one in made
            if one.end > one.start]  # fmt: skip


def _attempts(row: DrillRow) -> list[list[Segment]]:
    reached, made = 0, []
    for attempt in row.trained[:MOST_ATTEMPTS]:
        made.append(_of_attempt(attempt, reached))
        reached = max([reached, *(step for _, step, _ in attempt.points)])
    return made


def _of_attempt(attempt: TrainedAttempt, reached: int) -> list[Segment]:
    if not attempt.points:
        return [Segment("starting", attempt.began, attempt.began)]
    first, last = attempt.points[0][0], attempt.points[-1][0]
    again = max((t for t, step, _ in attempt.points if step <= reached), default=first)
    return [
        Segment("starting", attempt.began, first),
        Segment("repeated", first, again),
        Segment("training", again, last),
    ]


def _gap(row: DrillRow, start: float, end: float, *, after: bool) -> list[Segment]:
    """Between two attempts: first not noticed, then named. Before the first one: a start."""
    if not after:
        return [Segment("starting", start, end)]
    fault = next((one.t for one in row.timeline if one.kind == "fault"), start)
    said = end if row.noticed is None else fault + row.noticed
    middle = min(max(said, start), end)
    return [Segment("unnoticed", start, middle), Segment("down", middle, end)]


def _tail(row: DrillRow, start: float, end: float) -> list[Segment]:
    """Behind the last step: it ends, or was started again and took none."""
    again = next((one.t for one in row.timeline if one.kind == "start" and one.t > start), end)
    return [Segment("ending", start, again), Segment("starting", again, end)]


def window(rows: Sequence[DrillRow]) -> Window:
    """One for all of them: as wide as the slowest recovery needs."""
    drawn = [made for row in rows if (made := segments(row))]
    if not drawn:
        return Window(0.0, 1.0)
    last = max(made[-1].end for made in drawn)
    needed = max(
        (one.end for made in drawn for one in made
         if one.kind in ("unnoticed", "down", "repeated") or one is made[0]),
        default=last,
    )  # fmt: skip
    noticed = max((row.noticed or 0.0 for row in rows), default=0.0)
    end = max(min(last, SHOWN_AFTER * max(needed, noticed)), 1.0)
    start = max(min(made[0].start for made in drawn), -LONGEST_BEFORE * end)
    return Window(min(start, 0.0), end)


def ticks(shown: Window, most: int = 9) -> list[float]:
    """Round seconds, few enough to be read."""
    span = shown.end - shown.start
    sizes = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 3600, 7200, 21600)
    size = next((one for one in sizes if span / one <= most), span / most)
    first = int(shown.start / size) - 1
    found = [round(size * number, 6) for number in range(first, first + most + 4)]
    return [one for one in found if shown.start <= one <= shown.end]


# --- drawing -------------------------------------------------------------------------------------


def axis(shown: Window) -> str:
    parts = []
    for tick in ticks(shown):
        x = shown.x(tick)
        label = "fault" if tick == 0 else f"{tick:+g} s".replace("-", "−")
        where = "start" if x < 30 else "end" if x > WIDTH - 30 else "middle"
        parts.append(element("text", escaped(label), x=x, y=AXIS - 8, text_anchor=where))
        parts.append(element("line", x1=x, x2=x, y1=AXIS - 4, y2=AXIS, class_="tick"))
    return _svg("".join(parts), AXIS, label="time scale, in seconds from the fault")


def drawing(row: DrillRow, shown: Window) -> str:
    """'' where nothing is known of it."""
    made = segments(row)
    zero = zero_of(row)
    if not made or zero is None:
        return ""
    parts = [
        element("line", x1=shown.x(tick), x2=shown.x(tick), y1=0.0, y2=HEIGHT, class_="grid")
        for tick in ticks(shown)
    ]
    parts += [_bar(one, shown) for one in made if one.end > shown.start and one.start < shown.end]
    parts += [
        _mark(one, one.t - zero, shown)
        for one in row.timeline[:MOST_EVENTS]
        if one.kind in MARKS and shown.start <= one.t - zero <= shown.end
    ]
    parts += _labels(row, shown)
    return _svg("".join(parts), HEIGHT, label=f"timeline of {row.drill}")


def _bar(one: Segment, shown: Window) -> str:
    x, end = shown.x(one.start), shown.x(one.end)
    took = seconds(one.end - one.start)
    return element(
        "rect", text_of("title", f"{KINDS[one.kind]}, {took}"), x=x, y=TOP,
        width=max(end - x, 0.8), height=BAR, class_=one.kind,
    )  # fmt: skip


def _mark(one: Happened, t: float, shown: Window) -> str:
    x, middle = shown.x(t), TOP + BAR / 2
    title = text_of("title", f"{one.what}, {moment(t)}")
    if one.kind == "fault":
        shape = element("path", title, d=f"M{x:.1f} {TOP - 5}V{TOP + BAR + 5}", class_="fault")
    elif one.kind == "said":
        shape = element("circle", title, cx=x, cy=middle, r=3.6, class_="said")
    elif one.kind == "lifted":
        shape = element("rect", title, x=x - 3.2, y=middle - 3.2, width=6.4, height=6.4,
                        class_="lifted")  # fmt: skip
    else:
        tip, base = TOP + BAR - 1, TOP + BAR + 6
        points = f"{x - 4.5:.1f},{base} {x + 4.5:.1f},{base} {x:.1f},{tip}"
        shape = element("polygon", title, points=points, class_="resume")
    return shape


def _labels(row: DrillRow, shown: Window) -> list[str]:
    """Above the bar when it was noticed, below it when training was back: they never collide."""
    stopped = any(one.kind == "resume" for one in row.timeline)
    made = []
    for words, t, y in (
        ("noticed", row.noticed, TOP - 6),
        ("back in training", row.recovered if stopped else None, TOP + BAR + 13),
    ):
        if t is None or t > shown.end:
            continue
        x = shown.x(t)
        right = x > WIDTH - 180
        label = f"{words} {seconds(t)}"
        place = x - 7 if right else x + 7
        made.append(text_of("text", label, x=place, y=y, text_anchor="end" if right else "start"))
    return made


def moment(t: float) -> str:
    """'4.1 s after the fault'."""
    return f"{seconds(abs(t))} {'after' if t >= 0 else 'before'} the fault"


def legend() -> str:
    """What the colours and signs mean, drawn as they are."""
    box = [
        element("li", _svg(element("rect", x=0, y=1, width=18, height=11, class_=kind), 13, wide=18)
                + escaped(words))
        for kind, words in KINDS.items()
    ]  # fmt: skip
    signs = {
        "fault": element("path", d="M9 0V13", class_="fault"),
        "said": element("circle", cx=9, cy=7, r=3.6, class_="said"),
        "resume": element("polygon", points="4.5,11 13.5,11 9,3", class_="resume"),
        "lifted": element("rect", x=5.8, y=3.8, width=6.4, height=6.4, class_="lifted"),
    }
    drawn = [element("li", _svg(sign, 13, wide=18) + escaped(MARKS[kind]))
             for kind, sign in signs.items()]  # fmt: skip
    return element("ul", "".join(box + drawn), class_="legend")


def _svg(inside: str, height: float, *, wide: float = WIDTH, label: str = "") -> str:
    role = {"role": "img", "aria_label": harmless(label)} if label else {"aria_hidden": "true"}
    title = {} if wide == WIDTH else {"width": wide, "height": height}
    return element("svg", inside, viewBox=f"0 0 {wide:g} {height:g}", **role, **title)
