"""Failed paths -> the smallest true sentences about them: a node, a direction, or single paths.

A path has a direction: (source, target). Where a node's whole row failed, it reaches no other node;
where its whole column failed, no other node reaches it; where both failed, it is cut off. What is
left are single paths, of which two ends are known and no more: neither end is accused.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from holdfast import text

Pair = tuple[str, str]
"""names of source and target"""


class Shape(enum.Enum):
    EVERYWHERE = "everywhere"
    """every path between any two nodes"""
    NODE = "node"
    """all paths of these nodes, both ways"""
    OUTBOUND = "outbound"
    """all paths from these nodes"""
    INBOUND = "inbound"
    """all paths to these nodes"""
    PATHS = "paths"
    """these single paths"""


class PathGroup(NamedTuple):
    shape: Shape
    nodes: tuple[str, ...]
    """which nodes it is about; () for single paths"""
    pairs: tuple[Pair, ...]

    @property
    def host(self) -> str:
        """The one node it is about; '' where it is about several, or about paths."""
        return self.nodes[0] if len(self.nodes) == 1 else ""

    @property
    def words(self) -> str:
        """'all paths to node-c', 'node-a → node-b'; plural unless it is a single path."""
        if self.shape is Shape.PATHS:
            return listed(self.pairs)
        return f"{WORDS[self.shape]}{'' if self.everywhere else ' ' + text.names(self.nodes)}"

    @property
    def everywhere(self) -> bool:
        return self.shape is Shape.EVERYWHERE

    def verb(self, one: str, many: str) -> str:
        """`one` where `words` is a single path, else `many`."""
        return one if len({frozenset(pair) for pair in self.pairs}) == 1 else many


WORDS = {
    Shape.EVERYWHERE: "all paths between the nodes",
    Shape.NODE: "all paths to and from",
    Shape.OUTBOUND: "all paths from",
    Shape.INBOUND: "all paths to",
}
LEAST_WITNESSES = 2
"""with a single other node it cannot be told which end is to blame"""


def smallest(failed: Collection[Pair], tested: Collection[Pair]) -> list[PathGroup]:
    """Every failed path is in a group; no group holds a path that passed.

    The answer does not depend on the order or the names of the nodes.
    """
    bad = frozenset(failed)
    nodes = sorted({name for pair in tested for name in pair})
    if not bad:
        return []
    if len(nodes) > LEAST_WITNESSES and bad >= frozenset(tested):
        return [PathGroup(Shape.EVERYWHERE, tuple(nodes), tuple(sorted(bad)))]
    cut_off = _all_failed(bad, tested, 0) & _all_failed(bad, tested, 1)
    rest = [pair for pair in tested if not cut_off.intersection(pair)]
    outbound, inbound = _all_failed(bad, rest, 0), _all_failed(bad, rest, 1)
    groups = [
        PathGroup(Shape.NODE, tuple(sorted(cut_off)), _of(bad, cut_off, 0, 1)),
        PathGroup(Shape.OUTBOUND, tuple(sorted(outbound)), _of(bad & frozenset(rest), outbound, 0)),
        PathGroup(Shape.INBOUND, tuple(sorted(inbound)), _of(bad & frozenset(rest), inbound, 1)),
    ]
    told = {pair for group in groups for pair in group.pairs}
    groups.append(PathGroup(Shape.PATHS, (), tuple(sorted(bad - told))))
    return [group for group in groups if group.pairs]


def _all_failed(bad: Collection[Pair], tested: Collection[Pair], end: int) -> set[str]:
    """The nodes of which every tested path with them at that end failed, and several did."""
    looked_at = Counter(pair[end] for pair in tested)
    failed = Counter(pair[end] for pair in tested if pair in bad)
    return {n for n, count in failed.items() if count == looked_at[n] >= LEAST_WITNESSES}


def _of(bad: Collection[Pair], nodes: Collection[str], *ends: int) -> tuple[Pair, ...]:
    return tuple(sorted(pair for pair in bad if any(pair[end] in nodes for end in ends)))


def listed(pairs: Collection[Pair], shown: int = 3) -> str:
    """'a → b', 'a ↔ b' where both ways are meant, 'a → b, a → c, b → c and 4 more'."""
    words = []
    for source, target in sorted(pairs):
        if (target, source) not in pairs:
            words.append(f"{source} → {target}")
        elif source < target:
            words.append(f"{source} ↔ {target}")
    if len(words) <= shown + 1:
        return ", ".join(words)
    return f"{', '.join(words[:shown])} and {len(words) - shown} more"
