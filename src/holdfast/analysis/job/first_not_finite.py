"""Where numbers that are not finite began: at which step, and on which ranks. Pure.

A loss is a rank's own. With DDP its gradients reach all ranks in the same step, and every loss is
NaN from the next step on: the first rank names the cause, and the others are victims.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, NamedTuple

from holdfast.analysis.scene.numbers import NotFinite

LASTS = 3
"""steps in a row: a loss over an empty batch is NaN once, and changes no parameter"""
SETTLED = 3.0
"""seconds after the first report in which an earlier step of another rank may still be reported"""


class FirstNotFinite(NamedTuple):
    what: Literal["loss", "gradients"]
    step: int
    value: str
    ranks: tuple[int, ...]
    """where it was first"""
    followed: tuple[int, ...]
    """where it was so at a later step"""


def find(
    reports: Sequence[NotFinite], *, living: Collection[int], now: float
) -> FirstNotFinite | None:
    """None also while ranks that have not reported may still do so."""
    if not any(_is_grave(report) for report in reports):
        return None
    heard = {report.rank for report in reports}
    began = min(report.heard_at for report in reports)
    if not heard.issuperset(living) and now - began < SETTLED:
        return None
    # Gradients are known after the loss of their step, and with DDP to all ranks.
    first = min(reports, key=lambda report: (report.step, report.what != "loss", report.rank))
    same = [r for r in reports if (r.step, r.what) == (first.step, first.what)]
    ranks = {report.rank for report in same}
    return FirstNotFinite(
        what=first.what,
        step=first.step,
        value=first.value,
        ranks=tuple(sorted(ranks)),
        followed=tuple(sorted(heard - ranks)),
    )


def _is_grave(report: NotFinite) -> bool:
    """An infinite norm may be one that does not fit its type; then nothing but the step is lost."""
    return report.row >= LASTS or (report.what == "gradients" and report.value == "nan")
