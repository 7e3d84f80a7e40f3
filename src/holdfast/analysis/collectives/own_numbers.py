"""A rank's view with the launcher's numbers: recorders and told waits have those of its world."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.analysis.collectives import entries, groups
from holdfast.analysis.scene.scene import Claim, RankView, Recorder, Scene

CLOCK_STEP = 5.0
"""seconds by which two ways to find the wall time of a claim may differ: taking evidence takes a
while. More means that the clock was set in between"""

EMPTY = Recorder(collectives=(), entered={}, finished={})


def translated(
    scene: Scene, view: RankView, ranks: Mapping[int, int], *, stranger: bool = False
) -> RankView:
    """`ranks`: number in the world -> rank. Of a `stranger` the recorder shows another group."""
    recorder = view.recorder
    if isinstance(recorder, Recorder):
        claim = view.beat.claim if view.beat else None
        if stranger:
            recorder = EMPTY
        elif claim is not None and not claim.first:
            recorder = since(claim_wall(scene, claim), recorder)
        recorder = _with_members(recorder, ranks)
    beat = view.beat
    if beat is not None and beat.waits_for is not None:
        awaited = ranks.get(beat.waits_for, _unknown(beat.waits_for))
        if awaited != beat.waits_for:
            beat = msgspec.structs.replace(beat, waits_for=awaited)
    if recorder is view.recorder and beat is view.beat:
        return view
    return msgspec.structs.replace(view, recorder=recorder, beat=beat)


def _with_members(recorder: Recorder, ranks: Mapping[int, int]) -> Recorder:
    """Their order in a group is kept; a member that is not known has a number below zero."""
    members = {
        group: tuple(ranks.get(number, _unknown(number)) for number in numbers)
        for group, numbers in recorder.members.items()
    }
    if members == recorder.members:
        return recorder
    return msgspec.structs.replace(recorder, members=members)


def _unknown(number: int) -> int:
    return -1 - number


def told_apart(
    recorders: Mapping[int, Recorder], worlds: Mapping[str, tuple[int, ...]]
) -> dict[int, Recorder]:
    """Recorders of several worlds in which no two groups have the same name, and the default ones
    have their members; `worlds`: name -> its ranks in the order of their numbers."""
    homes = {rank: (name, ranks) for name, ranks in worlds.items() for rank in ranks}
    return {
        rank: _of_world(recorder, *homes[rank]) if rank in homes else recorder
        for rank, recorder in recorders.items()
    }


def _of_world(recorder: Recorder, name: str, ranks: tuple[int, ...]) -> Recorder:
    translated = _with_members(recorder, dict(enumerate(ranks)))
    default = {group: ranks for group in recorder.entered if groups.is_default(group)}
    whole = msgspec.structs.replace(translated, members={**default, **translated.members})
    known = {*whole.entered, *whole.members, *(m.group for m in whole.messages)}
    return groups.renamed(whole, {group: f"{group} of {name}" for group in known})


def claim_wall(scene: Scene, claim: Claim) -> float:
    """When it entered init_process_group, by the recorders' clock; 0 when unknown. If that clock
    was set since, the earlier of two answers: nothing of the group that exists may be dropped."""
    if not scene.evidence_wall or not scene.evidence_at:
        return claim.wall
    counted = scene.evidence_wall - (scene.evidence_at - claim.at)
    stepped = abs(counted - claim.wall) > CLOCK_STEP
    return min(counted, claim.wall) if stepped else claim.wall


def since(wall: float, recorder: Recorder) -> Recorder:
    """Without what was issued before: it is of a group that was destroyed. A ring that holds none
    of the new group yet shows the old one only, so the names alone do not tell."""
    kept = [c for c in recorder.collectives if c.created >= wall]
    if len(kept) == len(recorder.collectives):
        return recorder
    begun = entries.recorder(
        kept,
        members=recorder.members,
        messages=[m for m in recorder.messages if m.created >= wall],
    )
    return msgspec.structs.replace(
        recorder,
        collectives=begun.collectives,
        messages=begun.messages,
        entered=begun.entered,
        finished=begun.finished,
    )
