"""Follow waits from rank to rank, to ranks that wait for no other, or round in a circle."""

from __future__ import annotations

from collections.abc import Mapping, Set

import msgspec


class WaitGraph(msgspec.Struct, frozen=True, kw_only=True):
    ends: frozenset[int]
    """waited for, and waiting for no rank"""
    led: frozenset[int]
    """whose waits lead to one of these"""
    ring: tuple[int, ...]
    """a circle with no way out, each rank waiting for the next; () when there is none"""


def follow(waits: Mapping[int, Set[int]]) -> WaitGraph:
    """`waits`: rank -> the ranks it waits for."""
    ends = frozenset(other for others in waits.values() for other in others if other not in waits)
    waiters: dict[int, set[int]] = {}
    for rank, others in waits.items():
        for other in others:
            waiters.setdefault(other, set()).add(rank)
    led: set[int] = set()
    ahead = list(ends)
    while ahead:
        new = waiters.get(ahead.pop(), set()) - led
        led |= new
        ahead += new
    return WaitGraph(ends=ends, led=frozenset(led), ring=_ring(waits, waits.keys() - led))


def _ring(waits: Mapping[int, Set[int]], closed: Set[int]) -> tuple[int, ...]:
    """None of the closed ones leads to an end, so following any of them comes back."""
    if not closed:
        return ()
    path = [min(closed)]
    places = {path[0]: 0}
    while True:
        following = min(waits[path[-1]])
        if following in places:
            circle = path[places[following] :]
            lowest = circle.index(min(circle))
            return tuple(circle[lowest:] + circle[:lowest])
        places[following] = len(path)
        path.append(following)
