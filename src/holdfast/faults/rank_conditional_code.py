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
from holdfast.collectives import waits
from holdfast.collectives.waits import Wait
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
    sizes = sorted((len(side) for side in sides.values()), reverse=True)
    undecided = len(sizes) > 1 and sizes[0] == sizes[1]
    most = max(sides.values(), key=len)
    odd = [w.rank for side in sides.values() if undecided or side is not most for w in side]
    rest = [rank for rank in seen.deadlock if rank not in odd]
    if undecided:
        where = "; ".join(_waits(side) for side in sides.values())
        reason = (
            f"the ranks wait for each other in different groups: {where}; undecided who is wrong"
        )
    else:
        place = hold_up.place(scene.rank(odd[0]))
        own = "; ".join(_waits(side) for side in sides.values() if side is not most)
        reason = f"{own} ({place}), where nobody else comes; {_waits(most)} for it"
    return FAULT.verdict(
        reason,
        ranks=odd,
        victims=rest,
        certain=all(wait.sure for wait in seen.waits),
        fix="let every member of the group call that collective, outside of `if rank == …`",
        evidence=[
            Evidence(quote=w.title, source="flight recorder", rank=w.rank) for w in seen.waits
        ],
    )


def _waits(side: list[Wait]) -> str:
    ranks = [wait.rank for wait in side]
    verb = scene_words.one_or_many(ranks, "waits", "wait")
    return f"{scene_words.plain(ranks)} {verb} in {side[0].title}"
