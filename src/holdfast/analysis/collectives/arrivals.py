"""Which rank comes last to the collectives, again and again, by the times in the recorders.

The times are the host's clock on one machine; for NCCL they show when the host asked.

Where ranks meet in several groups, lateness is handed on: a rank that waits for a slow one in
one group comes late to the next. So no rank is charged with more than the time since its own last
wait.
"""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.analysis.collectives import groups, worlds
from holdfast.analysis.collectives.groups import Recorders
from holdfast.analysis.scene import heard
from holdfast.analysis.scene.scene import Scene

WINDOW = 64
"""collectives looked at in each group"""
ENOUGH = 8
NEGLIGIBLE = 0.005
"""seconds of lag that any scheduler makes"""
BREAK = 10.0
"""seconds between two collectives: an evaluation or a save came between, not a step"""


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    group: str
    """in which it kept the others waiting most"""
    last: int
    """how often it came last by more than a scheduler's whim"""
    seen: int
    """of how many collectives in all its groups"""
    lag: float
    """seconds, the median of those"""
    share: float
    """of the time the others spent waiting for it"""


class _Round(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    arrivals: dict[int, float]
    over: float
    """when the last one arrived"""


def straggler(scene: Scene) -> Straggler | None:
    """The one rank for which the others wait, in whichever groups they meet it."""
    found = [late for part in worlds.parts(scene) if (late := part.memo(_of_one_world)) is not None]
    return max(found, key=lambda late: late.share, default=None)


def _of_one_world(scene: Scene) -> Straggler | None:
    recorders = groups.of(scene)
    if len(recorders) != len(scene.ranks) or heard.late_nodes(scene):
        return None
    return among(recorders, _clocks(scene))


class _NodeClock(NamedTuple):
    """By what the times in a rank's recorder are measured."""

    node: str
    bound: float
    """seconds: right within this"""
    distance: float | None
    """of its wall clock from the monotonic one when its ranks joined, as both look by now"""


def _clocks(scene: Scene) -> dict[int, _NodeClock]:
    """Of each rank; empty on one machine."""
    found: dict[int, _NodeClock] = {}
    views = {view.rank: view for view in scene.ranks}
    for node in scene.nodes:
        own = [views[rank] for rank in node.ranks if rank in views]
        claims = [view.beat.claim for view in own if view.beat and view.beat.claim]
        distances = [claim.wall - claim.at for claim in claims if claim.wall]
        distance = statistics.median(distances) if distances else None
        clock = _NodeClock(node.name, node.clock_bound, distance)
        found.update((view.rank, clock) for view in own)
    return found


def among(recorders: Recorders, nodes: Mapping[int, _NodeClock] | None = None) -> Straggler | None:
    """The same, from the recorders of all ranks of a job, with one name for one group. `nodes`:
    whose clock the times of a rank are by, where there are several."""
    if len(recorders) < 2:
        return None
    rounds = _rounds(recorders)
    late: dict[int, list[tuple[str, float]]] = {}
    for rank, group, lag in _lags(rounds, nodes or {}):
        late.setdefault(rank, []).append((group, lag))
    if not late:
        return None
    sums = {rank: sum(lag for _, lag in found) for rank, found in late.items()}
    worst = max(late, key=lambda rank: sums[rank])
    lags = [lag for _, lag in late[worst]]
    own = [r for r in rounds if worst in r.arrivals]
    if len(own) < ENOUGH or len(lags) < ENOUGH // 2 or sums[worst] < 0.8 * sum(sums.values()):
        return None  # too soon to say, or they take turns: no one is slow
    return Straggler(
        rank=worst,
        group=statistics.mode(group for group, _ in late[worst]),
        last=len(lags),
        seen=len(own),
        lag=statistics.median(lags),
        share=min(1.0, sums[worst] / max(_time_spent(own), 1e-9)),
    )


def _rounds(recorders: Recorders) -> list[_Round]:
    """The last collectives of each group that all its members have entered, oldest first; all
    groups over the same time, for where one is not known, lateness that it hands on to another
    looks like that rank's own."""
    known = groups.indexed(recorders)
    found: list[_Round] = []
    since = 0.0
    for group, positions in known.met.items():
        members = groups.read_members(group, known)
        whole = [positions[n] for n in sorted(positions) if len(positions[n]) == len(members) > 1]
        times = [{rank: c.created for rank, c in seen.items()} for seen in whole]
        own = [
            _Round(group=group, arrivals=arrivals, over=max(arrivals.values()))
            for arrivals in [one for one in times if all(one.values())][-WINDOW:]
        ]
        if len(own) >= WINDOW // 2:  # it may have begun before what is known of it
            since = max(since, own[0].over)
        found += own
    return sorted((r for r in found if r.over >= since), key=lambda r: r.over)


def _lags(
    rounds: Sequence[_Round], nodes: Mapping[int, _NodeClock]
) -> Iterator[tuple[int, str, float]]:
    """Which rank came last, to which group, and how much of the delay it caused itself. What two
    nodes' clocks may be apart is no delay."""
    released: dict[int, list[float]] = {}
    doubts: dict[tuple[str, int], float] = {}
    for r in rounds:  # by their end, so each list is sorted
        for rank in r.arrivals:
            released.setdefault(rank, []).append(r.over)
    for r in rounds:
        if r.over - min(r.arrivals.values()) <= NEGLIGIBLE:
            continue  # as in most
        last = [rank for rank, at in r.arrivals.items() if at == r.over]
        if len(last) > 1:
            continue
        others = [at for rank, at in r.arrivals.items() if rank != last[0]]
        waits_over = released[last[0]]
        before = bisect.bisect_left(waits_over, r.over)
        busy = r.over - waits_over[before - 1] if before else r.over
        lag = min(r.over - statistics.median(others), busy)
        place = r.group, last[0]
        if place not in doubts:
            doubts[place] = _clock_doubt(last[0], r.arrivals, nodes)
        if lag > NEGLIGIBLE + doubts[place]:
            yield last[0], r.group, lag


def _clock_doubt(rank: int, members: Iterable[int], nodes: Mapping[int, _NodeClock]) -> float:
    """Seconds by which that rank's times may be wrong against those of the others in its group."""
    own = nodes.get(rank)
    others = {nodes[member] for member in members if member in nodes} - {own}
    return max((_apart(own, other) for other in others), default=0.0) if own else 0.0


def _apart(one: _NodeClock, other: _NodeClock) -> float:
    """A wall clock that was set since the ranks joined makes what was recorded before look wrong
    by as much."""
    known = one.distance is not None and other.distance is not None
    step = abs((one.distance or 0.0) - (other.distance or 0.0)) if known else 0.0
    return one.bound + other.bound + step


def _time_spent(rounds: Sequence[_Round]) -> float:
    return sum(b.over - a.over for a, b in itertools.pairwise(rounds) if b.over - a.over < BREAK)
