"""Broken promises by their cause: a script that loses its place in the data loses it in every
drill, and is told so once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast import text
from holdfast.analysis.drill.outcome import BrokenPromise, DrillRow

OF_TRAINING = frozenset({"data", "loss", "weights"})
"""promises that are broken together, by what the script does not restore"""
Cause = tuple[tuple[str, str, str], ...]
"""promise, slug and fix of each"""


class BrokenByCause(NamedTuple):
    """One drill and what was broken in it; or several, in which the same was, by the same cause."""

    rows: tuple[DrillRow, ...]
    promises: tuple[BrokenPromise, ...]
    """as seen in the first of them"""

    @property
    def row(self) -> DrillRow:
        return self.rows[0]

    @property
    def left(self) -> list[str]:
        return [] if self.same_in else list(self.row.left)

    @property
    def remarks(self) -> list[str]:
        return list(dict.fromkeys(one for row in self.rows for one in row.remarks))

    @property
    def same_in(self) -> str:
        """'' of one drill."""
        count = len(self.rows)
        return f"same cause in {text.counted(count, 'drill')}" if count > 1 else ""


def broken_by_cause(rows: Sequence[DrillRow]) -> list[BrokenByCause]:
    """In the order of the drills; what several share comes after what each has alone."""
    shared: dict[Cause, list[DrillRow]] = {}
    for row in rows:
        if of_training := _of_training(row.broken):
            shared.setdefault(_cause(of_training), []).append(row)
    common = {cause: found for cause, found in shared.items() if len(found) > 1}
    alone = []
    for row in rows:
        is_common = _cause(_of_training(row.broken)) in common
        own = [one for one in row.broken if not (is_common and one.promise in OF_TRAINING)]
        if own:
            alone.append(BrokenByCause((row,), tuple(own)))
    return alone + [
        BrokenByCause(tuple(found), tuple(_of_training(found[0].broken)))
        for found in common.values()
    ]


def _of_training(promises: Iterable[BrokenPromise]) -> list[BrokenPromise]:
    return [one for one in promises if one.promise in OF_TRAINING]


def _cause(promises: Iterable[BrokenPromise]) -> Cause:
    return tuple((one.promise, one.slug, one.fix) for one in promises)
