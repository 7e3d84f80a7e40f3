"""Follow waits from rank to rank, to ranks that wait for no other, or round in a circle.

In a large job thousands of ranks wait for the same thousands of others. They share one set of
these, and the way leads from each rank to its set and on to the ranks in it, so that the time grows
with the number of ranks and not with its square.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from holdfast.analysis.collectives import positions
from holdfast.analysis.collectives.positions import Wait

TRIED = 16
"""ranks of which it is tried whether the circle opens without them"""

Edges = Mapping[int, frozenset[int]]
"""rank -> the ranks it waits for, each of them; perhaps itself too, which counts for nothing"""
_Node = int | frozenset[int]
"""a rank, or the ranks that some wait for"""


class WaitGraph(msgspec.Struct, frozen=True, kw_only=True):
    ends: frozenset[int]
    """waited for, and waiting for no rank"""
    led: frozenset[int]
    """whose waits lead to one of these"""
    circles: tuple[frozenset[int], ...]
    """ranks that wait for each other, and wait for ever, whatever other ranks do"""
    ring: tuple[int, ...]
    """one way round in the first of them, each rank waiting for the next; () without any"""
    either: frozenset[int] = frozenset()
    """ends that have sends open: one of them does not wait, and which is not known"""


def of_waits(waits: Mapping[int, Iterable[Wait]]) -> WaitGraph:
    """A send waits for its receiver, its script seldom does. So a rank that has nothing but sends
    open waits where that leads to an end; where it only closes a circle, it is an end itself."""
    listed = {rank: positions.holding(own) for rank, own in waits.items()}
    shared = _SharedSets()
    missing = {r: shared.union(p for w in own for p in w.awaited) for r, own in listed.items()}
    edges = {rank: others for rank, others in missing.items() if others and others != {rank}}
    sure = {r: shared.union(p for w in listed[r] for p in (w.absent, w.behind)) for r in edges}
    senders = {r for r in edges if all(w.only_sends for w in listed[r] if w.awaited)}
    graph = follow(edges, sure)
    closing = sorted(senders.intersection(rank for circle in graph.circles for rank in circle))
    opened = {rank: _without([rank], edges, sure) for rank in closing[:TRIED]}
    able = [rank for rank, rest in opened.items() if rest.ends > graph.ends and not rest.circles]
    if len(able) == 1:
        return opened[able[0]]
    rest = _without(able or closing, edges, sure)
    if not closing or rest.circles or not rest.ends > graph.ends:
        return graph
    return msgspec.structs.replace(rest, either=frozenset(able or closing))


def _without(ranks: Iterable[int], edges: Edges, sure: Edges) -> WaitGraph:
    """As if these did not wait."""
    left_out = set(ranks)
    kept = {rank: others for rank, others in edges.items() if rank not in left_out}
    return follow(kept, {rank: sure[rank] for rank in kept})


class _SharedSets:
    def __init__(self) -> None:
        self._found: dict[tuple[int, ...], frozenset[int]] = {}

    def union(self, parts: Iterable[tuple[int, ...]]) -> frozenset[int]:
        """Of tuples that many waits have in common. To compare them would take as long as to make
        the set again, so they are known by their identity; the waits keep them alive."""
        listed = [part for part in parts if part]
        key = tuple(map(id, listed))
        if key not in self._found:
            self._found[key] = frozenset[int]().union(*listed)
        return self._found[key]


def follow(waits: Edges, sure: Edges | None = None) -> WaitGraph:
    """`sure`: those of the waits that are certain, if not all are; only such close a circle."""
    ends = frozenset[int]().union(*set(waits.values())) - waits.keys()
    back, seen = _turned_round(waits), set[_Node]()
    led = {node for end in ends for node in _in_leaving_order(end, back, seen) if node in waits}
    closing = waits if sure is None else sure
    circles = tuple(sorted(_circles(closing), key=min))
    return WaitGraph(
        ends=ends,
        led=_ranks(led),
        circles=circles,
        ring=_ring(closing, circles[0]) if circles else (),
    )


def _ways(waits: Edges) -> dict[_Node, Iterable[_Node]]:
    """From ranks to what they wait for."""
    ways: dict[_Node, Iterable[_Node]] = {others: others for others in waits.values()}
    ways.update((rank, (others,)) for rank, others in waits.items())
    return ways


def _turned_round(waits: Edges) -> dict[_Node, list[_Node]]:
    """From ranks to what waits for them."""
    ways: dict[_Node, list[_Node]] = {rank: [] for rank in waits}
    for rank, others in waits.items():
        ways.setdefault(others, []).append(rank)
    for others in set(waits.values()):
        for other in others:
            ways.setdefault(other, []).append(others)
    return ways


def _ranks(nodes: Iterable[_Node]) -> frozenset[int]:
    return frozenset(node for node in nodes if isinstance(node, int))


def _circles(waits: Edges) -> Iterator[frozenset[int]]:
    """Ranks each of which waits for every other one by some way (Kosaraju's algorithm)."""
    ways, back = _ways(waits), _turned_round(waits)
    seen: set[_Node] = set()
    left = [node for start in waits for node in _in_leaving_order(start, ways, seen)]
    seen = set()
    for start in reversed(left):
        found = _ranks(_in_leaving_order(start, back, seen))
        if len(found) > 1:
            yield found


def _in_leaving_order(
    start: _Node, ways: Mapping[_Node, Iterable[_Node]], seen: set[_Node]
) -> Iterator[_Node]:
    """All that can be reached from there and was not `seen`; each after all that follows it."""
    if start in seen or start not in ways:
        return
    seen.add(start)
    path = [(start, iter(ways[start]))]
    while path:
        node, others = path[-1]
        following = next((n for n in others if n not in seen and n in ways), None)
        if following is None:
            path.pop()
            yield node
        else:
            seen.add(following)
            path.append((following, iter(ways[following])))


def _ring(waits: Edges, circle: frozenset[int]) -> tuple[int, ...]:
    """Following any of them within the circle comes back."""
    path = [min(circle)]
    places = {path[0]: 0}
    nexts: dict[frozenset[int], int] = {}
    while True:
        others = waits[path[-1]]
        if others not in nexts:
            nexts[others] = min(others & circle)
        following = nexts[others]
        if following in places:
            found = path[places[following] :]
            lowest = found.index(min(found))
            return tuple(found[lowest:] + found[:lowest])
        places[following] = len(path)
        path.append(following)
