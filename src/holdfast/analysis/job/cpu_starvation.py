"""Whether ranks wait for a core rather than for each other, and whether that explains the delay.

A rank that got a third of the processor time it asked for takes three times as long, and the
others wait for it: it looks slow or stuck, and is neither. Starvation explains a delay when the
same work on free cores would have stayed within the job's habit; else something else is wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec

from holdfast.analysis.collectives import arrivals
from holdfast.analysis.job import gpu_stall, pace, stall
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.analysis.scene.surroundings import machines, on_its_machine

WINDOW = 5.0
"""seconds looked back on while steps continue: about the time of the steps behind `usual_step`"""
SHORTEST = 0.9
"""seconds: two looks a second apart; less says nothing"""
GOT_LITTLE = 0.6
"""of the processor time asked for; more is no reason for a delay that anybody notices"""
WAITED_LONG = 0.3
"""of the time: a rank that asks for little may wait for most of it, and lose nothing"""
HALF = 0.5
"""of a wait's timeout: then that is the news, whatever the reason"""


class CpuShare(msgspec.Struct, frozen=True, kw_only=True):
    """What some ranks got of the processors, added up."""

    ranks: tuple[int, ...]
    seconds: float
    ran: float
    queued: float

    @property
    def got(self) -> float:
        """Of what they asked for."""
        asked = self.ran + self.queued
        return self.ran / asked if asked else 1.0

    @property
    def asked(self) -> float:
        """In cores."""
        return (self.ran + self.queued) / self.seconds if self.seconds else 0.0

    @property
    def starved(self) -> bool:
        long = self.queued >= WAITED_LONG * self.seconds * len(self.ranks)
        return self.seconds >= SHORTEST and self.got <= GOT_LITTLE and long


def find(scene: Scene) -> CpuShare | None:
    """The ranks whose lack of CPU time explains that the job stalls or is slow."""
    living = [view for view in scene.ranks if view.death is None]
    if not living or exits.endings(scene):
        return None
    held = stall.find(scene)
    if held is None:
        return _behind_the_pace(scene, living)
    if held.timeout and held.seconds >= HALF * held.timeout:
        return None
    if gpu_stall.suspected(scene):
        return None  # its GPU has had the work for as long: it is no core that is missing
    world = held.scene
    pause = scene.now - pace.last_progress(world)
    shares = [share([scene.rank(r)], since=scene.now - pause) for r in held.roots]
    if not all(one.starved for one in shares):
        return None
    normal = pace.normal_pause(world, scene.best_step or pace.usual_step(world))
    return _worst_machine(scene, shares) if pause * _add(shares).got <= normal else None


def suspected(scene: Scene) -> bool:
    """Whether it is worth asking the machine which processes use the processors."""
    since = min(scene.now - WINDOW, pace.last_progress(scene))
    return any(share([view], since=since).starved for view in scene.ranks)


def _behind_the_pace(scene: Scene, living: list[RankView]) -> CpuShare | None:
    """Steps continue, but at less than half the pace this job has had."""
    usual, best = pace.usual_step(scene), scene.best_step
    goes_on = scene.now - pace.last_progress(scene) <= max(pace.SHORTEST, pace.TIMES_USUAL * usual)
    if not best or usual < pace.SLOWER * best or not goes_on:
        return None
    late = arrivals.straggler(scene)
    since = scene.now - WINDOW
    if late is None:
        all_ranks = seen = _worst_machine(scene, [share([view], since=since) for view in living])
    else:
        beside = [view for view in on_its_machine(scene, late.rank) if view.death is None]
        all_ranks = share(beside, since=since)
        seen = share([scene.rank(late.rank)], since=since)
    if not seen.starved or usual * seen.got >= pace.SLOWER * best:
        return None
    return all_ranks if all_ranks.starved else seen


def _worst_machine(scene: Scene, shares: list[CpuShare]) -> CpuShare:
    """Of these ranks those on the machine that gave its own the least: they share its cores, and
    not those of another."""
    own = {rank: one for one in shares for rank in one.ranks}
    each = [_add([own[rank] for rank in m.ranks]) for m in machines(scene, own)]
    return min(each, key=lambda one: one.got)


def share(views: Iterable[RankView], *, since: float) -> CpuShare:
    """From the last look before that moment on, so that all of the time since is covered."""
    return _add([_of(view, since) for view in views])


def _of(view: RankView, since: float) -> CpuShare:
    earlier = [look for look in view.looks if look.at <= since]
    looks = [*earlier[-1:], *(look for look in view.looks if look.at > since)]
    steps = list(itertools.pairwise(looks))
    # A loader that ends takes its share of the sums with it: that is no time given back.
    return CpuShare(
        ranks=(view.rank,),
        seconds=looks[-1].at - looks[0].at if looks else 0.0,
        ran=sum(max(0.0, b.ran - a.ran) for a, b in steps),
        queued=sum(max(0.0, b.queued - a.queued) for a, b in steps),
    )


def _add(shares: list[CpuShare]) -> CpuShare:
    return CpuShare(
        ranks=tuple(rank for one in shares for rank in one.ranks),
        seconds=min((one.seconds for one in shares), default=0.0),
        ran=sum(one.ran for one in shares),
        queued=sum(one.queued for one in shares),
    )
