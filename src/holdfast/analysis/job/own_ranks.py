"""Ranks that the ranks started themselves (`mp.spawn`), where several did so at one address. Pure.

One rank 0 serves the store at an address; the others' ranks find it taken, or join a group that is
not theirs, and fail with whatever error that makes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from holdfast import text
from holdfast.analysis.scene.scene import RankView, StartedRank
from holdfast.findings import Evidence

FIX = "run it with --nproc-per-node 1, or without a launcher"


def clash(ranks: Iterable[RankView]) -> tuple[RankView, ...]:
    """Those that each started the same rank at the same address of their machine; () where none."""
    starters: defaultdict[tuple[str, StartedRank], list[RankView]] = defaultdict(list)
    for view in ranks:
        for started in view.started:
            starters[view.host, started].append(view)
    return next((tuple(found) for found in starters.values() if len(found) > 1), ())


def sentence(starters: tuple[RankView, ...]) -> str:
    one = _common(starters)
    return (
        f"{text.ranks(view.rank for view in starters)} each started a rank {one.rank} at "
        f"{one.store}: this script starts its own ranks"
    )


def evidence(starters: tuple[RankView, ...]) -> list[Evidence]:
    one = _common(starters)
    said = f"started a process that claimed rank {one.rank} at {one.store}"
    return [Evidence(quote=f"rank {v.rank} {said}", rank=v.rank) for v in starters]


def _common(starters: tuple[RankView, ...]) -> StartedRank:
    shared = set(starters[0].started).intersection(*(view.started for view in starters[1:]))
    return min(shared, key=lambda one: (one.store, one.rank))
