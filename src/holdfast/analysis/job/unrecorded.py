"""Jobs whose collectives no flight recorder shows, since they run inside CUDA graphs."""

from __future__ import annotations

from typing import NamedTuple

from holdfast import text
from holdfast.analysis.collectives import groups, stacks, waits
from holdfast.analysis.job import pace, phrases
from holdfast.analysis.scene.scene import RankView, Scene, Stack

LONG_ENOUGH = 10.0
"""seconds without a step before it is worth a word: no rank is surely the one"""
STEPS = 3
"""that went by without a record: a graph is replayed, not captured"""


def is_blind(scene: Scene) -> bool:
    """Nothing moves, the recorders show no wait, and had stopped while steps went on."""
    beats = [v.beat for v in scene.ranks if v.beat is not None and v.death is None]
    seen = waits.analyse(scene)
    if not any(beat.cuda_graphs for beat in beats) or not scene.evidence_wall or seen.mismatch:
        return False
    if seen.roots or seen.deadlock or any(wait.absent or wait.gone for wait in seen.waits):
        return False
    last_step = pace.last_progress(scene)
    if scene.now - last_step < LONG_ENOUGH:
        return False
    newest = max(
        (c.created for r in groups.of(scene).values() for c in (*r.collectives, *r.messages)),
        default=0.0,
    )
    stepped = scene.evidence_wall - (scene.evidence_at - last_step)
    return bool(newest) and stepped - newest > STEPS * pace.usual_step(scene)


class OddOne(NamedTuple):
    """The one rank that is not where all others wait. Stacks show no collective, so it is likely
    the one that they wait for, and no more than that."""

    view: RankView
    others: tuple[RankView, ...]
    place: str
    """where the others are"""

    def sentence(self, scene: Scene) -> str:
        idle = text.elapsed(scene.now - pace.last_progress(scene))
        others = [view.rank for view in self.others]
        return (
            f"{phrases.who(scene, [self.view.rank])} is likely what the job has waited for since "
            f"its last step {idle} ago: it is {waits.where_is(self.view)}, while "
            f"{text.ranks(others)} {text.plural(others, 'waits', 'wait')} {self.place}; that is by "
            "their stacks alone: torch does not record collectives in CUDA graphs"
        )


def odd_one(scene: Scene) -> OddOne | None:
    """Of a job in which `is_blind`; None where a stack is missing, or more than one differ."""
    living = {v.rank: v for v in scene.ranks if v.death is None}
    seen = {rank: v.stack for rank, v in living.items()
            if isinstance(v.stack, Stack) and v.stack.frames}  # fmt: skip
    if len(living) < 2 or len(seen) < len(living) or scene.missing_members:
        return None
    waiting = {rank for rank, stack in seen.items() if _waits(stack)} or _together(seen)
    odd = living.keys() - waiting
    if len(odd) != 1 or not waiting:
        return None
    others = tuple(view for rank, view in living.items() if rank in waiting)
    return OddOne(living[odd.pop()], others, waits.where_is(others[0]))


def _waits(stack: Stack) -> bool:
    return stacks.in_gpu_wait(stack) or stacks.in_collective(stack)


def _together(seen: dict[int, Stack]) -> set[int]:
    """Those at one line of the script on a core, as ranks are that wait for their GPU in `.item()`:
    all but one of three or more, or none."""
    places: dict[object, set[int]] = {}
    for rank, stack in seen.items():
        if stack.active and not stacks.activity_of(stack):
            places.setdefault(stack.frames, set()).add(rank)
    largest = max(places.values(), key=len, default=set[int]())
    return largest if len(largest) == len(seen) - 1 > 1 else set()
