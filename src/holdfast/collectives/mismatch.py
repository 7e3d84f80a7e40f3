"""Ranks that met at one position of a group with different collectives.

Only operations that must be alike are compared, by what crosses the wire: [2, 3] and [6] are the
same. A scatter, a gather or an all_to_all may differ legitimately.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import msgspec

from holdfast import consequences, endings
from holdfast.signals import Collective, Recorder, Scene

ALIKE = frozenset(
    {"all_reduce", "broadcast", "reduce", "barrier", "all_reduce_barrier", "reduce_scatter"}
    | {"_all_gather_base", "_allgather_base", "all_gather_into_tensor", "_reduce_scatter_base"}
    | {"reduce_scatter_tensor"}
)
"""operations whose size must be the same on every rank"""

Kind = tuple[str, str]
"""what a collective is: its operation, and what it moves where that must agree"""


class Mismatch(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    sequence: int
    odd: tuple[int, ...]
    """the minority; everybody in it when nobody can tell"""
    right: tuple[int, ...]
    undecided: bool
    kinds: dict[int, str]
    """rank -> 'all_reduce [[4]] Float'"""
    skipped: bool
    """the odd ranks are where the others will be, or usually are, one collective later"""
    ops_differ: bool


def find_mismatch(scene: Scene) -> Mismatch | None:
    """The earliest position at which two ranks disagree and that is not safely over."""
    recorders = {v.rank: v.recorder for v in scene.ranks if isinstance(v.recorder, Recorder)}
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
    for group, sequence in sorted(open_at, key=lambda position: (position[1], position[0])):
        kinds = {r: _entry(recorder, group, sequence) for r, recorder in recorders.items()}
        seen = {rank: entry for rank, entry in kinds.items() if entry}
        if len({kind(entry) for entry in seen.values()}) > 1:
            return _judge(scene, group, sequence, seen, recorders)
        if sized_out := _odd_one_aborted(scene, group, sequence, seen):
            return sized_out
    return None


def kind(collective: Collective) -> Kind:
    """Equal for collectives that fit together."""
    return collective.op, _amount(collective.shape) if collective.op in ALIKE else ""


def _amount(shape: str) -> str:
    """'[[2, 3]] Float' and '[[6]] Float' move the same."""
    lists, _, types = shape.rpartition("]")
    sizes = re.findall(r"\[([\d, ]*)\]", lists + "]")
    total = sum(math.prod(int(n) for n in re.findall(r"\d+", dims)) for dims in sizes)
    return f"{total} {types.strip()}" if sizes else shape


def _entry(recorder: Recorder, group: str, sequence: int) -> Collective | None:
    return next(
        (c for c in recorder.collectives if c.group == group and c.sequence == sequence), None
    )


def _aborted(scene: Scene) -> tuple[int, ...]:
    """Ranks that Gloo ended because they were sent more than they expected."""
    return tuple(e.rank for e in endings.endings(scene) if e.consequence == consequences.MISMATCH)


def _judge(
    scene: Scene,
    group: str,
    sequence: int,
    seen: Mapping[int, Collective],
    recorders: Mapping[int, Recorder],
) -> Mismatch:
    sides: dict[Kind, set[int]] = {}
    for rank, entry in seen.items():
        sides.setdefault(kind(entry), set()).add(rank)
    silent = [rank for rank in _aborted(scene) if rank not in seen]
    if silent and len({op for op, _ in sides}) == 1:
        # It expected less than it was sent, so it stood with the smaller one.
        sides[min(sides, key=_size)] |= set(silent)
    counts = sorted((len(ranks) for ranks in sides.values()), reverse=True)
    if counts[0] == counts[1] and len(recorders) < len(scene.ranks):
        usual = [k for k in sides if _is_usual(k, group, sequence, recorders)]
        right = sides[usual[0]] if len(usual) == 1 else set()
    else:
        right = set() if counts[0] == counts[1] else max(sides.values(), key=len)
    everybody = {rank for ranks in sides.values() for rank in ranks}
    odd = everybody - right
    return Mismatch(
        group=group,
        sequence=sequence,
        odd=tuple(sorted(odd)),
        right=tuple(sorted(right)),
        undecided=not right,
        kinds={rank: describe(entry) for rank, entry in sorted(seen.items())},
        skipped=bool(right) and _looks_skipped(group, sequence, odd, right, recorders),
        ops_differ=len({op for op, _ in sides}) > 1,
    )


def _size(side: Kind) -> float:
    number = side[1].partition(" ")[0]
    return float(number) if number.isdigit() else 0.0


def _odd_one_aborted(
    scene: Scene, group: str, sequence: int, seen: Mapping[int, Collective]
) -> Mismatch | None:
    """All who are left agree, so the one that was sent too much is the odd one."""
    aborted = _aborted(scene)
    last = all(
        isinstance(v.recorder, Recorder) and v.recorder.entered.get(group, 0) <= sequence
        for v in scene.ranks
        if v.rank in seen
    )
    if len(aborted) != 1 or aborted[0] in seen or not last or not seen:
        return None
    everybody_else = len(seen) == len(scene.ranks) - 1
    undecided = len(seen) < 2 or not everybody_else
    return Mismatch(
        group=group,
        sequence=sequence,
        odd=tuple(sorted({*aborted, *(seen if undecided else ())})),
        right=() if undecided else tuple(sorted(seen)),
        undecided=undecided,
        kinds={rank: describe(entry) for rank, entry in sorted(seen.items())},
        skipped=False,
        ops_differ=False,
    )


def _is_usual(side: Kind, group: str, sequence: int, recorders: Mapping[int, Recorder]) -> bool:
    """It has been seen before, so it is the other one that is new."""
    return any(
        c.group == group and c.sequence < sequence and kind(c) == side
        for recorder in recorders.values()
        for c in recorder.collectives
    )


def _looks_skipped(
    group: str,
    sequence: int,
    odd: set[int],
    right: set[int],
    recorders: Mapping[int, Recorder],
) -> bool:
    theirs = {
        kind(c) for r in odd if r in recorders and (c := _entry(recorders[r], group, sequence))
    }
    for rank in right & set(recorders):
        own = {c.sequence: kind(c) for c in recorders[rank].collectives if c.group == group}
        now = own.get(sequence)
        if any(own.get(n) == now and own.get(n + 1) in theirs for n in own):
            return True
    return False


def describe(collective: Collective) -> str:
    return f"{collective.op} {collective.shape}".strip()
