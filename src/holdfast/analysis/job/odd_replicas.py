"""Which of several replicas is the wrong one, where that can be said. Pure.

The ranks that hold what more than half of them hold are taken to be right. A fault of hardware
hits one rank, or those of one machine: where many differ it is something else, and none is named.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast import text
from holdfast.analysis.scene.numbers import ReplicaDifference

SMALL = 4
"""one in so many ranks may be wrong; a single one always may"""


class OddReplicas(NamedTuple):
    ranks: tuple[int, ...]
    """() when undecided"""
    undecided: str = ""
    """why"""


def find(found: ReplicaDifference) -> OddReplicas:
    all_ranks, most = found.ranks, found.kinds[0]
    odd = tuple(sorted(set(all_ranks) - set(most)))
    if len(all_ranks) == 2:
        return OddReplicas((), "of two ranks neither has a majority")
    if all(len(kind) == 1 for kind in found.kinds):
        return OddReplicas((), "no two ranks hold the same, so nothing keeps them equal")
    if len(most) * 2 <= len(all_ranks):
        return OddReplicas((), "no kind has a majority")
    if len(odd) > max(1, len(all_ranks) // SMALL):
        return OddReplicas((), f"{len(odd)} of {len(all_ranks)} ranks differ from the rest")
    unlike = {found.devices.get(rank, "") for rank in odd}
    if not unlike <= {found.devices.get(rank, "") for rank in most}:
        return OddReplicas((), f"{text.ranks(odd)} computes on other hardware, which may round "
                               "differently")  # fmt: skip
    return OddReplicas(odd)
