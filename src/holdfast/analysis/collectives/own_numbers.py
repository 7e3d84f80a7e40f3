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


class Numbering:
    """The launcher's rank of each number in a world. All its ranks list the same groups."""

    def __init__(self, ranks: Mapping[int, int]) -> None:
        self._ranks = ranks
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._same = frozenset(n for n, rank in ranks.items() if n == rank)

    def rank(self, number: int) -> int:
        """Below zero where it is not known."""
        return self._ranks.get(number, -1 - number)

    def of_group(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        """Their order in the group is kept."""
        if numbers not in self._known:
            found = tuple(map(self.rank, numbers))
            self._known[numbers] = numbers if found == numbers else found
        return self._known[numbers]

    def keeps(self, members: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether every number in these groups is the rank's own, as in most jobs."""
        return all(self._same.issuperset(numbers) for numbers in members.values())


def translated(
    scene: Scene, view: RankView, numbering: Numbering, *, stranger: bool = False
) -> RankView:
    """Of a `stranger` the recorder shows another group."""
    recorder = view.recorder
    if isinstance(recorder, Recorder):
        claim = view.beat.claim if view.beat else None
        if stranger:
            recorder = EMPTY
        elif claim is not None and not claim.first:
            recorder = since(claim_wall(scene, claim), recorder)
        recorder = _with_members(recorder, numbering)
    beat = view.beat
    if beat is not None and beat.waits_for is not None:
        awaited = numbering.rank(beat.waits_for)
        if awaited != beat.waits_for:
            beat = msgspec.structs.replace(beat, waits_for=awaited)
    if recorder is view.recorder and beat is view.beat:
        return view
    return msgspec.structs.replace(view, recorder=recorder, beat=beat)


def _with_members(recorder: Recorder, numbering: Numbering) -> Recorder:
    if numbering.keeps(recorder.members):
        return recorder
    members = {group: numbering.of_group(ns) for group, ns in recorder.members.items()}
    return msgspec.structs.replace(recorder, members=members)


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
    translated = _with_members(recorder, Numbering(dict(enumerate(ranks))))
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
