"""What a job trained, thinned so that a report stays small however long the job is."""

from __future__ import annotations

import math
from collections.abc import Sequence

from holdfast.analysis.drill.outcome import TracePoint

MOST = 400
"""points of one attempt: more than a page has pixels for"""


def thinned(points: Sequence[TracePoint], most: int = MOST) -> tuple[TracePoint, ...]:
    """At most so many points, in their order: the first, the last, and of every stretch between
    them the lowest and the highest loss, so that a spike stays to be seen."""
    if len(points) <= most:
        return tuple(points)
    inner = points[1:-1]
    stretches = max((most - 2) // 2, 1)
    kept: list[TracePoint] = []
    for number in range(stretches):
        low, high = (len(inner) * (number + more) // stretches for more in (0, 1))
        if stretch := inner[low:high]:
            ends = {stretch.index(chosen(stretch, key=_loss)) for chosen in (min, max)}
            kept += [stretch[index] for index in sorted(ends)]
    return (points[0], *kept, points[-1])


def _loss(point: TracePoint) -> float:
    """One that is not a number is as remarkable as the highest."""
    loss = point[2]
    return math.inf if loss is None or math.isnan(loss) else loss
