"""Ranks that met at one position of a group with different collectives."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast import endings
from holdfast.collectives import aborted, groups, siblings
from holdfast.collectives.groups import Recorders
from holdfast.collectives.kinds import Kind, Mismatch, describe, entry, kind, size
from holdfast.signals import Collective, Scene


def find_mismatch(scene: Scene) -> Mismatch | None:
    """The earliest position at which two ranks disagree and that is not safely over."""
    recorders = groups.of(scene)
    ended = endings.endings(scene)
    # A collective that failed counts as retired, so after a failure the last one is open too.
    open_at = {
        (group, sequence)
        for recorder in recorders.values()
        for group, entered in recorder.entered.items()
        for sequence in range(
            min(recorder.finished.get(group, 0) + 1, entered if ended else entered + 1),
            entered + 1,
        )
    }
    places = sorted(open_at, key=lambda position: (position[1], position[0]))
    for group, sequence in places:
        found = {r: entry(recorder, group, sequence) for r, recorder in recorders.items()}
        seen = {rank: collective for rank, collective in found.items() if collective}
        if len({kind(collective) for collective in seen.values()}) > 1:
            return _judge(scene, group, sequence, seen, recorders)
    return aborted.find(scene, places, recorders)


def _judge(
    scene: Scene,
    group: str,
    sequence: int,
    seen: Mapping[int, Collective],
    recorders: Recorders,
) -> Mismatch:
    sides: dict[Kind, set[int]] = {}
    for rank, collective in seen.items():
        sides.setdefault(kind(collective), set()).add(rank)
    silent = [rank for rank in aborted.ranks(scene) if rank not in seen]
    if silent and len({op for op, _ in sides}) == 1:
        # It expected less than it was sent, so it stood with the smaller one.
        sides[min(sides, key=size)] |= set(silent)
    right = _right(scene, group, sequence, sides, recorders)
    odd = {rank for ranks in sides.values() for rank in ranks} - right
    return Mismatch(
        group=group,
        sequence=sequence,
        odd=tuple(sorted(odd)),
        right=tuple(sorted(right)),
        undecided=not right,
        kinds={rank: describe(collective) for rank, collective in sorted(seen.items())},
        skipped=bool(right) and _looks_skipped(group, sequence, odd, right, recorders),
        ops_differ=len({op for op, _ in sides}) > 1,
    )


def _right(
    scene: Scene,
    group: str,
    sequence: int,
    sides: Mapping[Kind, set[int]],
    recorders: Recorders,
) -> set[int]:
    """The majority, the groups beside it included; nobody when there is none."""
    beside = list(siblings.votes(group, sequence, recorders).values())
    voices = {side: len(ranks) + beside.count(side) for side, ranks in sides.items()}
    most = [side for side, count in voices.items() if count == max(voices.values())]
    if len(most) == 1:
        return sides[most[0]]
    if len(recorders) < len(scene.ranks):
        usual = [side for side in sides if _is_usual(side, group, sequence, recorders)]
        return sides[usual[0]] if len(usual) == 1 else set()
    return set()


def _is_usual(side: Kind, group: str, sequence: int, recorders: Recorders) -> bool:
    """It has been seen before, so it is the other one that is new."""
    return any(
        c.group == group and c.sequence < sequence and kind(c) == side
        for recorder in recorders.values()
        for c in recorder.collectives
    )


def _looks_skipped(
    group: str, sequence: int, odd: set[int], right: set[int], recorders: Recorders
) -> bool:
    theirs = {
        kind(c) for r in odd if r in recorders and (c := entry(recorders[r], group, sequence))
    }
    for rank in right & set(recorders):
        own = {c.sequence: kind(c) for c in recorders[rank].collectives if c.group == group}
        now = own.get(sequence)
        if any(own.get(n) == now and own.get(n + 1) in theirs for n in own):
            return True
    return False
