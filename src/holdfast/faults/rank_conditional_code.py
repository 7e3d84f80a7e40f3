"""A collective that only some ranks run.

What you see   A silent hang: some ranks wait in one collective, the others in another, of another
               group. Each would go on if the others came.
Why            `if rank == 0: dist.barrier()`, a save or a metric that gathers on one rank only, a
               group whose members do not all call. In one group the ranks then meet in the wrong
               collective (see collective-mismatch); across two groups they wait for each other.
How to be sure holdfast follows who waits for whom through all groups: here it comes back to where
               it began, every rank waits, so no patience helps. The lines are in the ranks'
               stacks.
Fix            Call collectives on all members of the group, outside of `if rank == …`; keep only
               the printing and writing inside.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#groups
               https://github.com/pytorch/pytorch/issues/118369
               nvidia-resiliency-ext attribution/trace_analyzer/fr_attribution.py: several groups
"""

from __future__ import annotations

from holdfast import hold_up, scene_words
from holdfast.collectives import groups, siblings, waits
from holdfast.collectives.positions import Wait
from holdfast.model import Evidence, Fault, Verdict
from holdfast.signals import Scene

FAULT = Fault(code="HOLD602", slug="rank-conditional-code")


@FAULT.notice
def they_wait_for_each_other(scene: Scene) -> Verdict | None:
    seen = waits.analyse(scene)
    if not seen.deadlock or seen.mismatch or min(w.seconds for w in seen.waits) < hold_up.WAITS:
        return None
    sides: dict[tuple[str, int], list[Wait]] = {}
    for wait in seen.waits:
        sides.setdefault((wait.group, wait.sequence), []).append(wait)
    strange = _strange(scene, sides)
    odd = [w.rank for side in strange or sides.values() for w in side]
    rest = [rank for rank in seen.deadlock if rank not in odd]
    if not strange:
        where = "; ".join(_waits(side) for side in sides.values())
        reason = (
            f"the ranks wait for each other in different groups: {where}; undecided who is wrong"
        )
    else:
        place = hold_up.place(scene.rank(odd[0]))
        own = "; ".join(_waits(side) for side in strange)
        others = [side for side in sides.values() if side not in strange]
        where = _waits(others[0]) if len(others) == 1 else f"{scene_words.plain(rest)} wait"
        reason = f"{own} ({place}), where nobody else comes; {where} for it"
    return FAULT.verdict(
        reason,
        ranks=odd,
        victims=rest,
        # What no recorder knows of may have begun just now.
        certain=all(wait.sure and wait.group for wait in seen.waits),
        fix="let every member of the group call that collective, outside of `if rank == …`",
        evidence=[Evidence(quote=w.title, source=_source(w), rank=w.rank) for w in seen.waits],
    )


def _strange(scene: Scene, sides: dict[tuple[str, int], list[Wait]]) -> list[list[Wait]]:
    """The sides to blame; none when it is undecided.

    In a mesh every rank may wait somewhere else. Those are where the program has brought them
    whose place others share, in their own group or at the same position of one beside it.
    """
    recorders = groups.of(scene)
    voices = {
        place: len(side) + len(siblings.votes(*place, recorders)) for place, side in sides.items()
    }
    lonely = [side for place, side in sides.items() if voices[place] == 1]
    if lonely and len(lonely) < len(sides):
        return lonely
    most = [place for place in sides if voices[place] == max(voices.values())]
    return [side for place, side in sides.items() if place != most[0]] if len(most) == 1 else []


def _source(wait: Wait) -> str:
    return "flight recorder" if wait.group else "stack"


def _waits(side: list[Wait]) -> str:
    ranks = [wait.rank for wait in side]
    verb = scene_words.one_or_many(ranks, "waits", "wait")
    return f"{scene_words.plain(ranks)} {verb} in {side[0].title}"
