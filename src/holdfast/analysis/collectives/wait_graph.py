"""Follow waits from rank to rank, to ranks that wait for no other, or round in a circle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from holdfast.analysis.collectives import positions
from holdfast.analysis.collectives.positions import Wait

TRIED = 16
"""ranks of which it is tried whether the circle opens without them"""

Edges = Mapping[int, frozenset[int]]
"""rank -> the ranks it waits for, each of them"""


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
    edges = {r: missing for r, own in listed.items() if (missing := _missing(own) - {r})}
    sure = {r: frozenset().union(*((*w.absent, *w.behind) for w in listed[r])) for r in edges}
    senders = {r for r in edges if all(w.only_sends for w in listed[r] if w.missing)}
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


def _missing(waits: Iterable[Wait]) -> frozenset[int]:
    return frozenset[int]().union(*(wait.missing for wait in waits))


def follow(waits: Edges, sure: Edges | None = None) -> WaitGraph:
    """`sure`: those of the waits that are certain, if not all are; only such close a circle."""
    ends = frozenset[int]().union(*set(waits.values())) - waits.keys()
    waiters = _turned_round(waits)
    led: set[int] = set()
    ahead = list(ends)
    while ahead:
        new = waiters.get(ahead.pop(), set()) - led
        led |= new
        ahead += new
    closing = waits if sure is None else sure
    back = waiters if sure is None else _turned_round(sure)
    inner = {rank: back.get(rank, set()) & closing.keys() for rank in closing}
    circles = tuple(sorted(_circles(closing, inner), key=min))
    return WaitGraph(
        ends=ends,
        led=frozenset(led),
        circles=circles,
        ring=_ring(closing, circles[0]) if circles else (),
    )


def _turned_round(waits: Edges) -> dict[int, set[int]]:
    """Rank -> the ranks that wait for it. In a large job thousands wait for the same ranks, so
    each set of ranks is gone through once."""
    together: dict[frozenset[int], set[int]] = {}
    for rank, others in waits.items():
        together.setdefault(others, set()).add(rank)
    waiters: dict[int, set[int]] = {}
    for others, ranks in together.items():
        for other in others:
            waiters[other] = waiters[other] | ranks if other in waiters else ranks
    return waiters


def _circles(waits: Edges, waiters: Mapping[int, Iterable[int]]) -> Iterator[frozenset[int]]:
    """Ranks each of which waits for every other one by some way (Kosaraju's algorithm)."""
    seen: set[int] = set()
    left = [rank for start in waits for rank in _in_leaving_order(start, waits, seen)]
    seen = set()
    for start in reversed(left):
        found = frozenset(_in_leaving_order(start, waiters, seen))
        if len(found) > 1:
            yield found


def _in_leaving_order(
    start: int, ways: Mapping[int, Iterable[int]], seen: set[int]
) -> Iterator[int]:
    """All that can be reached from there and was not `seen`; each after all that follows it."""
    if start in seen or start not in ways:
        return
    seen.add(start)
    path = [(start, iter(ways[start]))]
    while path:
        rank, others = path[-1]
        following = next((r for r in others if r not in seen and r in ways), None)
        if following is None:
            path.pop()
            yield rank
        else:
            seen.add(following)
            path.append((following, iter(ways[following])))


def _ring(waits: Edges, circle: frozenset[int]) -> tuple[int, ...]:
    """Following any of them within the circle comes back."""
    path = [min(circle)]
    places = {path[0]: 0}
    while True:
        following = min(waits[path[-1]] & circle)
        if following in places:
            found = path[places[following] :]
            lowest = found.index(min(found))
            return tuple(found[lowest:] + found[:lowest])
        places[following] = len(path)
        path.append(following)
