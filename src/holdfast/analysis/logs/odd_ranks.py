"""Which ranks differ from the majority in a disagreement, and the evidence for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.logs.disagreement import Disagreement
from holdfast.findings import Culprit, Evidence

UNDECIDED = "which side is wrong: neither has a majority"


def named(ranks: Sequence[int], *, one_of: bool = False) -> Culprit:
    """One rank as the culprit; several by name. `one_of`: which of them is not known."""
    if len(ranks) == 1:
        return Culprit(rank=ranks[0])
    what = f"{'one of ' if one_of else ''}{text.ranks(ranks)}"
    return Culprit(what=what, ranks=tuple(sorted(ranks)), one_of=one_of)


def evidence(found: Disagreement) -> list[Evidence]:
    return [
        Evidence(
            quote=f"{text.ranks(who)}: {what}{found.called(who)}", source="positions", rank=who[0]
        )
        for what, who in list(found.sides.items())[:3]
    ]


def culprit(found: Disagreement) -> Culprit:
    """The ranks that differ from the majority; both sides where there is none."""
    if found.odd:
        return named(found.odd)
    sides = " versus ".join(text.ranks(side) for side in found.sides.values())
    return Culprit(what=sides, ranks=found.ranks, one_of=True)
