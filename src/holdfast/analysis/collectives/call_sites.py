"""From which line of the user's code a rank called the collective it is in, or crashed. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import text
from holdfast.analysis.collectives import groups, signature, stacks
from holdfast.analysis.scene.scene import RankView, Recorder, Scene, Stack

PLACES = 4
"""lines named in a sentence"""


def last_line(view: RankView) -> str:
    """'in evaluate() at train.py:26': where it crashed, raised or was last seen; '' unknown."""
    if view.crash is not None:
        return stacks.call_site(view.crash)
    if view.words is not None and view.words.where:
        return f"at {view.words.where}"
    if view.death is not None or not isinstance(view.stack, Stack):
        return ""  # a stack taken before it died may be of any moment
    return stacks.call_site(view.stack)


def of_collective(scene: Scene, rank: int, group: str, sequence: int) -> str:
    """The same of one collective: as its recorder has it, or where the rank is, if that is the
    last one it entered; '' when it may have gone on since."""
    view, own = scene.rank(rank), groups.of(scene).get(rank)
    if own is None or own.entered.get(group, 0) == sequence:
        return recorded(own, group, sequence, None) or last_line(view)
    return recorded(own, group, sequence, None)


def recorded(recorder: Recorder | None, group: str, sequence: int, stack: Stack | None) -> str:
    """By the frames of its entry; by `stack` if the rank has not entered a later one."""
    entry = signature.entry(recorder, group, sequence) if recorder else None
    if entry is not None and entry.frames:
        return stacks.call_site(Stack(frames=entry.frames, active=False, holds_gil=False))
    here = recorder is None or recorder.entered.get(group, 0) == sequence
    return stacks.call_site(stack) if stack is not None and here else ""


def each(scene: Scene, ranks: Iterable[int]) -> str:
    """'rank 0 in evaluate() at train.py:26, ranks 1-3 in backward() at train.py:63'; '' when none
    is known."""
    lines: dict[str, list[int]] = {}
    for rank in ranks:
        if line := last_line(scene.rank(rank)):
            lines.setdefault(line, []).append(rank)
    return ", ".join(f"{text.ranks(who)} {line}" for line, who in list(lines.items())[:PLACES])
