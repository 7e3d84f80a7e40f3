"""Groups of nodes between which no connection passes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.analysis.nodes.pattern import Pair

Island = tuple[str, ...]


def islands(
    nodes: Iterable[str], failed: Collection[Pair], tested: Collection[Pair]
) -> list[Island]:
    """The nodes in groups, the largest first. Between two groups every path failed, both ways.

    A path that was not tested may pass, so that it joins its ends: a split must be proven.
    """
    bad, looked_at = frozenset(failed), frozenset(tested)
    left = set(nodes)
    found: list[Island] = []
    while left:
        frontier = [left.pop()]
        island = set(frontier)
        while frontier:
            here = frontier.pop()
            joined = {other for other in left if not _apart(here, other, bad, looked_at)}
            left -= joined
            island |= joined
            frontier.extend(joined)
        found.append(tuple(sorted(island)))
    return sorted(found, key=lambda island: (-len(island), island))


def _apart(one: str, other: str, bad: frozenset[Pair], tested: frozenset[Pair]) -> bool:
    ways = {(one, other), (other, one)}
    return ways <= tested and ways <= bad


def is_partition(found: Collection[Island]) -> bool:
    """Two groups of several nodes; a node that is alone is cut off, which is another fault."""
    return sum(len(island) > 1 for island in found) > 1
