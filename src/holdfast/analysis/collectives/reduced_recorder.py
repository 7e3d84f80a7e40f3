"""A rank's flight recorder, small enough to be sent to another machine. Pure.

A ring holds 2,000 entries, with a stack each in a dump: megabytes a rank. What a verdict needs are
the positions, what is not over, and the recent past of each group, to which siblings and stragglers
are compared (`siblings.LOOK_BACK`, `arrivals.WINDOW`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.analysis.scene.scene import Collective, Recorder

RECENT = 64
"""entries of a group kept before the first one that is not over, after it, and at its end"""


def reduced(recorder: Recorder) -> Recorder:
    """Of each group what is not over, and what came shortly before. A script may have asked for
    thousands ahead of its GPU: of those the first and the last ones."""
    return msgspec.structs.replace(
        recorder,
        collectives=_reduced(recorder.collectives),
        messages=_reduced(recorder.messages),
    )


def _reduced(listed: tuple[Collective, ...]) -> tuple[Collective, ...]:
    by_group: dict[str, list[int]] = {}
    for index, c in enumerate(listed):
        by_group.setdefault(c.group, []).append(index)
    kept = sorted(index for own in by_group.values() for index in _kept(listed, own))
    return tuple(map(_without_frames_if_over, (listed[index] for index in kept)))


def _kept(listed: tuple[Collective, ...], own: list[int]) -> Iterable[int]:
    """Of one group, by index, oldest first. What comes after the last one that is over is open."""
    over = [n for n, index in enumerate(own) if listed[index].finished]
    first_open = over[-1] + 1 if over else 0
    return {*own[max(0, first_open - RECENT) : first_open + RECENT], *own[-RECENT:]}


def _without_frames_if_over(c: Collective) -> Collective:
    return msgspec.structs.replace(c, frames=()) if c.finished and c.frames else c
