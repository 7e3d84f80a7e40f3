"""Which ranks differ from the majority in a disagreement, and the evidence for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.logs.disagreement import Disagreement
from holdfast.findings import Culprit, Evidence

UNDECIDED = "which side is wrong: neither has a majority"


def named(ranks: Sequence[int]) -> Culprit:
    """One rank as the culprit; several by name."""
    return Culprit(rank=ranks[0]) if len(ranks) == 1 else Culprit(what=text.ranks(ranks))


def evidence(found: Disagreement) -> list[Evidence]:
    return [
        Evidence(
            quote=f"{text.ranks(who)}: {what}{found.called(who)}", source="positions", rank=who[0]
        )
        for what, who in list(found.sides.items())[:3]
    ]


def culprit(found: Disagreement) -> Culprit:
    """The ranks that differ from the majority; both sides where there is none."""
    if len(found.odd) == 1:
        return Culprit(rank=found.odd[0])
    sides = [found.odd] if found.odd else list(found.sides.values())
    return Culprit(what=" versus ".join(text.ranks(side) for side in sides))
