"""How the state of one rank differs from rank 0's, and what that means. Pure.

Replicas of data parallel training have the same bits: every rank adds the same gradients to the
same values. What differs is therefore meant (stages, experts, parts of an optimizer), a mistake
(nothing synchronizes), or the rounding of unlike machines. Only the last may be saved as if it were
equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from holdfast import text
from holdfast.checkpoint.ranks.contents import RankContents

SLIGHT = 1e-4
"""relative difference of a tensor that unlike machines or kernels explain, after a few steps"""
SLIGHT_IN_HALF = 1e-2
"""of a tensor of 16 bits or fewer: about one unit in the last place"""
MOST_EXAMPLES = 2
ACCEPTED_BY = "HOLDFAST_ACCEPT=ranks"

Kind = Literal["equal", "buffers", "slight", "values", "optimizer", "shapes", "names"]
"""the later, the worse"""
_ORDER: tuple[Kind, ...] = ("equal", "buffers", "slight", "values", "optimizer", "shapes", "names")
_OPTIMIZER: Kind = "optimizer"
_USUAL = {
    "names": "pipeline stages",
    "shapes": "parallelism by hand that splits tensors or layers over ranks",
    "optimizer": "an optimizer that keeps each rank's part (ZeRO, Muon, Shampoo)",
    "values": "expert or tensor parallelism with plain modules, LocalSGD, or a missing DDP",
    "only the optimizer's": "an optimizer that keeps each rank's part (ZeRO, Muon, Shampoo)",
}


class RankDifference(msgspec.Struct, frozen=True, kw_only=True):
    """Of one rank from rank 0."""

    kind: Kind = "equal"
    parts: tuple[str, ...] = ()
    """names in the State of what differs"""
    examples: tuple[str, ...] = ()
    count: int = 0
    """how many tensors"""

    @property
    def refused(self) -> bool:
        return _ORDER.index(self.kind) > _ORDER.index("slight")


class RanksVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Rank 0's, for all ranks."""

    refusal: str = ""
    hint: str = ""
    note: str = ""


def difference(first: RankContents, mine: RankContents, rank: int) -> RankDifference:
    """`first`: rank 0's."""
    names = sorted(first.structure.keys() | mine.structure.keys())
    unlike = [n for n in names if first.structure.get(n) != mine.structure.get(n)]
    if unlike:
        return _structure(unlike, first, mine, rank)
    common = [name for name in first.values if name in mine.values]
    apart = {n: d for n in common if (d := distance(first.values[n], mine.values[n])) > 0}
    if apart:
        return _values(apart, first.structure)
    loose = [n for n in first.loose if first.loose[n] != mine.loose.get(n)]
    if loose:
        return RankDifference(kind="buffers", examples=tuple(loose[:1]), count=len(loose))
    return RankDifference()


def _structure(
    unlike: Sequence[str], first: RankContents, mine: RankContents, rank: int
) -> RankDifference:
    parts, kind = _parts(unlike), _OPTIMIZER
    then, now = first.structure, mine.structure
    if not set(parts) <= {*first.optimizers, *mine.optimizers}:
        # The optimizer follows its model.
        unlike = [n for n in unlike if n.split(".", 1)[0] not in first.optimizers] or unlike
        one_sided = [n for n in unlike if n not in then or n not in now]
        unlike = [*one_sided, *(n for n in unlike if n not in set(one_sided))]
        kind = "names" if one_sided else "shapes"
    examples = [
        f"{name}: {then.get(name, 'absent')} on rank 0, {now.get(name, 'absent')} on rank {rank}"
        for name in unlike[:MOST_EXAMPLES]
    ]
    return RankDifference(kind=kind, parts=parts, examples=tuple(examples), count=len(unlike))


def _values(apart: Mapping[str, float], structure: Mapping[str, str]) -> RankDifference:
    far = [name for name in apart if apart[name] > _slight(structure.get(name, ""))]
    # A few tiny tensors far apart among many that are near: rounding, not another model.
    if 4 * len(far) < len(apart):
        worst = max(apart, key=lambda name: apart[name])
        said = f"{worst} by {min(apart[worst], 9.9):.0e} of its size"
        return RankDifference(
            kind="slight", parts=_parts(apart), examples=(said,), count=len(apart)
        )
    return RankDifference(
        kind="values", parts=_parts(apart), examples=tuple(far[:MOST_EXAMPLES]), count=len(far)
    )


def _slight(described: str) -> float:
    return SLIGHT_IN_HALF if described.startswith(("bfloat16", "float16", "float8")) else SLIGHT


def distance(one: Sequence[float | None], other: Sequence[float | None]) -> float:
    """Relative to the larger; 0 for equal ones, infinite where only one is a finite number."""
    if tuple(one) == tuple(other):
        return 0.0
    pairs = [(a, b) for a, b in zip(one, other, strict=False) if a is not None and b is not None]
    if len(one) != len(other) or [a is None for a in one] != [b is None for b in other]:
        return math.inf
    largest = max(abs(number) for pair in pairs for number in pair)  # so that nothing overflows
    scaled = [(a / largest, b / largest) for a, b in pairs]
    scale = max(math.hypot(*(a for a, _ in scaled)), math.hypot(*(b for _, b in scaled)))
    return math.hypot(*(a - b for a, b in scaled)) / scale


def _parts(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({name.split(".", 1)[0] for name in names}))


# --- what it means -----------------------------------------------------------------------------


def verdict(
    found: Mapping[int, RankDifference], alike: Mapping[int, Sequence[int]]
) -> RanksVerdict:
    """`found` by rank; `alike`: the ranks, itself among them, for which it stands."""
    worst = max(found.values(), key=lambda one: _ORDER.index(one.kind), default=RankDifference())
    rank = next((r for r, one in found.items() if one is worst), 0)
    ranks = sorted({r for one in found if found[one].kind == worst.kind for r in alike[one]})
    if worst.refused:
        return _refusal(worst, ranks, found.values())
    more = f" and {worst.count - 1} more" if worst.count > 1 else ""
    if worst.kind == "slight":
        return RanksVerdict(
            note=f"the replicas differ slightly ({worst.examples[0]} on rank {rank}{more}): rank "
            "0's values are saved for all; if they are meant to differ, give State per_rank="
            f"{_tuple(worst.parts)}"
        )
    if worst.kind == "buffers":
        return RanksVerdict(
            note=f"buffers differ between ranks ({worst.examples[0]}{more}): rank 0's are saved "
            "for all, as DistributedDataParallel has it"
        )
    return RanksVerdict()


def _refusal(
    worst: RankDifference, ranks: Sequence[int], found: Iterable[RankDifference]
) -> RanksVerdict:
    parts = sorted({part for one in found if one.refused for part in one.parts})
    what = {
        "names": "other tensors",
        "shapes": "tensors of other shapes",
        "optimizer": "other optimizer state",
        "values": "other values",
    }[worst.kind]
    have = "have" if len(ranks) > 1 else "has"
    usual = _USUAL["only the optimizer's" if parts == ["optimizer"] else worst.kind]
    rest = worst.count - len(worst.examples)
    more = f"; {rest} more" if rest > 0 else ""
    return RanksVerdict(
        refusal=f"{text.ranks(ranks)} {have} {what} than rank 0, and only rank 0's would be saved "
        f"({'; '.join(worst.examples)}{more}): usual for {usual}",
        hint=f"let each rank save its own: State(…, per_rank={_tuple(parts)}); if rank 0's is "
        f"right for all ranks, set {ACCEPTED_BY}",
    )


def _tuple(names: Sequence[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"({quoted}{',' if len(names) == 1 else ''})"
