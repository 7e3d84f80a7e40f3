"""The loss of a disturbed job over that of the undisturbed one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.analysis.drill.outcome import DrillRow, TracePoint, TrainedAttempt
from holdfast.analysis.drill.traces import thinned
from holdfast.view.drill_timeline import MOST_ATTEMPTS
from holdfast.view.svg import element, escaped, number
from holdfast.view.text import harmless

WIDTH, HEIGHT = 300.0, 130.0
LEFT, RIGHT, TOP, BOTTOM = 34.0, 6.0, 8.0, 18.0
DRAWN = 200
"""points of a line: as many as it has pixels"""

Shown = list[tuple[int, float]]
"""steps and their losses, those that are numbers"""


def drawing(row: DrillRow, reference: TrainedAttempt | None) -> str:
    """'' where no losses are known, of either."""
    below = _shown(reference.points) if reference else []
    lines = [made for one in row.trained[:MOST_ATTEMPTS] if (made := _shown(one.points))]
    if not below or not lines:
        return ""
    every = [point for line in [below, *lines] for point in line]
    steps, losses = [step for step, _ in every], [loss for _, loss in every]
    frame = _Frame(min(steps), max(steps), min(losses), max(losses))
    parts = [*frame.axes(), frame.line(below, "reference")]
    for count, line in enumerate(lines):
        parts.append(frame.line(line, f"attempt attempt-{min(count, 2)}"))
    parts += [frame.dot(line[0]) for line in lines[1:]]
    label = f"loss of {row.drill} over the reference"
    return element("svg", "".join(parts), viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", role="img",
                   aria_label=harmless(label), class_="curve")  # fmt: skip


def _shown(points: Sequence[TracePoint]) -> Shown:
    return [(step, loss) for _, step, loss in thinned(points, DRAWN)
            if loss is not None and math.isfinite(loss)]  # fmt: skip


class _Frame:
    def __init__(self, first: int, last: int, low: float, high: float) -> None:
        self._first, self._last, self._low, self._high = first, last, low, high

    def _x(self, step: int) -> float:
        part = (step - self._first) / max(self._last - self._first, 1)
        return LEFT + part * (WIDTH - LEFT - RIGHT)

    def _y(self, loss: float) -> float:
        # Halves first: the distance of two huge numbers may be none.
        part = (loss / 2 - self._low / 2) / ((self._high / 2 - self._low / 2) or 1.0)
        return TOP + (1 - part) * (HEIGHT - TOP - BOTTOM)

    def line(self, points: Shown, kind: str) -> str:
        made = " ".join(f"{number(self._x(step))},{number(self._y(loss))}" for step, loss in points)
        return element("polyline", points=made, class_=kind)

    def dot(self, point: tuple[int, float]) -> str:
        """Where an attempt took up training."""
        return element("circle", cx=self._x(point[0]), cy=self._y(point[1]), r=2.6, class_="resume")

    def axes(self) -> list[str]:
        low, high = (escaped(f"{value:.3g}") for value in (self._low, self._high))
        across = HEIGHT - BOTTOM
        return [
            element("path", d=f"M{LEFT:g} {TOP:g}V{across:g}H{WIDTH - RIGHT:g}", class_="axes"),
            element("text", high, x=LEFT - 4, y=TOP + 8, text_anchor="end"),
            element("text", low, x=LEFT - 4, y=across, text_anchor="end"),
            element("text", f"step {self._first}", x=LEFT, y=HEIGHT - 4),
            element("text", f"{self._last}", x=WIDTH - RIGHT, y=HEIGHT - 4, text_anchor="end"),
        ]
