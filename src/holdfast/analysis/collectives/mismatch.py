"""Ranks that met at one position of a group with different collectives."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.analysis.collectives import aborted, groups, siblings
from holdfast.analysis.collectives.groups import Recorders
from holdfast.analysis.collectives.signature import Kind, Mismatch, describe, entry, kind, size
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Collective, Scene


def find_mismatch(scene: Scene) -> Mismatch | None:
    """The earliest position at which two ranks disagree and that is not safely over; `scene` is of
    one world, for only its members can disagree."""
    recorders = groups.of(scene)
    ended = bool(exits.endings(scene))
    found = among(
        recorders,
        failed=ended,
        complete=len(recorders) == len(scene.ranks) and not scene.missing_members,
        shortened=aborted.ranks(scene),
    )
    if found or not aborted.ranks(scene):
        return found
    return aborted.find(scene, _open_places(recorders, failed=ended), recorders)


def among(
    recorders: Recorders, *, failed: bool, complete: bool, shortened: tuple[int, ...] = ()
) -> Mismatch | None:
    """The same, from recorders that have one name for one group.

    `failed`: the job has, or a rank of it. `complete`: no rank's recorder is missing.
    `shortened`: ranks that Gloo ended because they were sent more than they expected.
    """
    known = groups.indexed(recorders)
    for place in _open_places(recorders, failed=failed):
        seen = known.met[place[0]][place[1]]
        if len({(c.op, c.shape) for c in seen.values()}) == 1:
            continue  # most are, and what each moves need not be worked out
        if len({kind(collective) for collective in seen.values()}) > 1:
            return _judge(place, seen, recorders, complete=complete, shortened=shortened)
    return None


def _open_places(recorders: Recorders, *, failed: bool) -> list[tuple[str, int]]:
    """Where anybody has an entry that is not over, the earliest first."""
    places = set()
    for recorder in recorders.values():
        first = {}
        for group, entered in recorder.entered.items():
            # A collective that failed counts as retired, so after a failure the last is open too.
            last = entered if failed else entered + 1
            first[group] = min(recorder.finished.get(group, 0) + 1, last)
        places |= {
            (c.group, c.sequence)
            for c in recorder.collectives
            if c.group in first and c.sequence >= first[c.group]
        }
    return sorted(places, key=lambda position: (position[1], position[0]))


def _judge(
    place: tuple[str, int],
    seen: Mapping[int, Collective],
    recorders: Recorders,
    *,
    complete: bool,
    shortened: tuple[int, ...],
) -> Mismatch:
    group, sequence = place
    sides: dict[Kind, set[int]] = {}
    for rank, collective in seen.items():
        sides.setdefault(kind(collective), set()).add(rank)
    silent = [rank for rank in shortened if rank not in seen]
    if silent and len({op for op, _ in sides}) == 1:
        # It expected less than it was sent, so it called the smaller one.
        sides[min(sides, key=size)] |= set(silent)
    right = _right(group, sequence, sides, recorders, complete=complete)
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
    group: str,
    sequence: int,
    sides: Mapping[Kind, set[int]],
    recorders: Recorders,
    *,
    complete: bool,
) -> set[int]:
    """The majority, the groups beside it included; empty when there is none."""
    beside = list(siblings.votes(group, sequence, recorders, at_least=2).values())
    voices = {side: len(ranks) + beside.count(side) for side, ranks in sides.items()}
    most = [side for side, count in voices.items() if count == max(voices.values())]
    if len(most) == 1:
        return sides[most[0]]
    if complete:
        return set()
    usual = [side for side in sides if _is_usual(side, group, sequence, recorders)]
    return sides[usual[0]] if len(usual) == 1 else set()


def _is_usual(side: Kind, group: str, sequence: int, recorders: Recorders) -> bool:
    """It has been seen before, so it is the other one that is new."""
    return any(
        kind(c) == side
        for number, seen in groups.indexed(recorders).met.get(group, {}).items()
        if number < sequence
        for c in seen.values()
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
