"""Which rank waits for which: from every rank's recorder and stack, as far as there are any.

Positions are (group, sequence). A rank that entered one and has not finished it waits for every
member that never entered it; followed across groups, that leads to the ranks that wait for
no other: the roots. Recorders are read one after the other, milliseconds apart, so in a job that
runs the picture may be slightly torn: what it says counts only while nothing moves.

Which ranks belong to a group: see groups.py.
"""

from __future__ import annotations

import bisect
from collections.abc import Container, Mapping

import msgspec

from holdfast.analysis.collectives import (
    detours,
    gpu_side,
    groups,
    loader_workers,
    stacks,
    wait_graph,
    worlds,
)
from holdfast.analysis.collectives.detours import Detour
from holdfast.analysis.collectives.mismatch import find_mismatch
from holdfast.analysis.collectives.positions import OpenCollectives, Wait
from holdfast.analysis.collectives.signature import Mismatch
from holdfast.analysis.collectives.wait_age import age
from holdfast.analysis.collectives.wait_graph import WaitGraph
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import RankView, Recorder, Scene, Stack
from holdfast.analysis.scene.secondary_errors import TIMED_OUT

ELSEWHERE = frozenset({"sleep", "save", "load", "download", "data loading", "compile"})
"""what a rank is busy with when it certainly does not sit in a collective"""
IDLE = 3.0
"""seconds without activity in which a rank does not compute"""


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    waits: tuple[Wait, ...] = ()
    """by rank"""
    roots: tuple[int, ...] = ()
    """living ranks that others wait for and that wait for no rank themselves"""
    one_of: bool = False
    """only one of the roots does not wait: all have sends open, and which one is not known"""
    victims: tuple[int, ...] = ()
    """ranks whose wait leads to a root"""
    deadlock: tuple[int, ...] = ()
    """all living ranks of a world, when all of them wait for each other across groups"""
    circle: tuple[int, ...] = ()
    """ranks that wait for each other, whatever the others do"""
    detour: Detour | None = None
    """where ranks wait for each other: which of them left the way that the others took"""
    mismatch: Mismatch | None = None

    def of(self, rank: int) -> Wait | None:
        at = bisect.bisect_left(self.waits, rank, key=lambda wait: wait.rank)
        found = self.waits[at] if at < len(self.waits) else None
        return found if found is not None and found.rank == rank else None


def analyse(scene: Scene) -> Waits:
    """Of all its worlds, each for itself. Nothing of one in which a rank has taken a step since the
    evidence was taken: it is stale. Never raises."""
    return scene.memo(_analyse)


def _analyse(scene: Scene) -> Waits:
    seen = [part.memo(_analyse_world) for part in worlds.parts(scene)]
    if len(seen) == 1:
        return seen[0]
    return Waits(
        waits=tuple(sorted((w for one in seen for w in one.waits), key=lambda w: w.rank)),
        roots=tuple(sorted(rank for one in seen for rank in one.roots)),
        one_of=any(one.one_of for one in seen),
        victims=tuple(sorted(rank for one in seen for rank in one.victims)),
        deadlock=next((one.deadlock for one in seen if one.deadlock), ()),
        circle=next((one.circle for one in seen if one.circle), ()),
        detour=next((one.detour for one in seen if one.detour), None),
        mismatch=next((one.mismatch for one in seen if one.mismatch), None),
    )


def _analyse_world(scene: Scene) -> Waits:
    if moved_on(scene):
        return Waits()
    living = {v.rank: v for v in scene.ranks if v.death is None and v.words is None}
    recorders = groups.IndexedRecorders(
        (rank, recorder) for rank, recorder in groups.of(scene).items() if rank in living
    )
    ended = tuple(v.rank for v in scene.ranks if v.rank not in living)
    unread = frozenset(living.keys() - recorders.keys())
    positions = OpenCollectives(recorders, ended=ended, unread=unread)
    told = {v.rank: wait for v in living.values() if (wait := _told_wait(scene, v, living, ended))}
    waits = {
        rank: msgspec.structs.replace(wait, seconds=age(scene, view, recorders.get(rank), wait))
        for rank, view in living.items()
        if (wait := _wait(view, positions)) is not None
    } | told
    open_ones = {rank: [*_open(view, positions), *_only(waits.get(rank))]
                 for rank, view in living.items()}  # fmt: skip
    graph = wait_graph.of_waits(open_ones)
    named = _named(graph, open_ones, waits) - unread
    roots = _roots(scene, waits, living, named - graph.either or named)
    if unread.issuperset(roots) and positions.partners(roots):
        roots = ()  # it may itself wait for one of those
    victims = _led_to(roots, waits, living, graph)
    if roots and not waits:
        victims = ended
    deadlock: tuple[int, ...] = ()
    if not roots and set(recorders) == set(waits) == set(living) and not scene.missing_members:
        # Every link is known and none leads out of the circle.
        linked = [w for w in waits.values() if w.absent]
        closed = all(w.absent or w.behind or w.alone for w in waits.values())
        deadlock = tuple(sorted(living)) if linked and closed and not ended else ()
    return Waits(
        waits=tuple(waits[rank] for rank in sorted(waits)),
        roots=roots,
        one_of=bool(roots) and graph.either.issuperset(roots) and len(roots) > 1,
        victims=victims,
        deadlock=deadlock,
        circle=tuple(sorted({rank for one in graph.circles for rank in one})),
        detour=detours.find(graph.circles, open_ones, recorders),
        mismatch=find_mismatch(scene),
    )


def moved_on(scene: Scene) -> bool:
    return any(v.beat is not None and v.beat.step_at > scene.evidence_at for v in scene.ranks)


def _open(view: RankView, positions: OpenCollectives) -> list[Wait]:
    """What it is in. What its script is busy with says nothing of a GPU that is known to be in."""
    shown = _shown_waiting(view)
    return [w for w in positions.of(view.rank) if w.on_gpu or shown is not False]


def _only(wait: Wait | None) -> list[Wait]:
    """One that no recorder shows."""
    return [wait] if wait is not None and not wait.group else []


def _wait(view: RankView, positions: OpenCollectives) -> Wait | None:
    shown = _shown_waiting(view)
    # One that all have entered is in flight: only the stack makes it a wait.
    found = [w for w in _open(view, positions) if w.awaited or w.gone or shown is True]
    if found:
        # The one that a rank is missing from is what it waits in; any other is merely in flight.
        chosen = max(found, key=lambda w: (bool(w.absent), bool(w.behind), bool(w.gone)))
        return msgspec.structs.replace(chosen, sure=shown is True)
    recorder = positions.recorders.get(view.rank)
    if recorder is not None and gpu_side.not_started(recorder):
        return None  # its GPU holds its script up, wherever that is
    if shown and isinstance(view.stack, Stack) and stacks.in_collective(view.stack):
        # In none that anybody recorded: NCCL makes a group's connections in its first collective,
        # and there a rank hangs, unrecorded, until the others come. A message from one rank to
        # another is never recorded by Gloo, so there it means nothing.
        op = stacks.collective_of(view.stack)
        return Wait(
            rank=view.rank,
            op=op,
            alone=not positions.unread and not stacks.in_message(view.stack),
            unread=tuple(sorted(positions.unread)),
            sure=True,
        )
    return None


def _told_wait(
    scene: Scene, view: RankView, living: Container[int], ended: Container[int]
) -> Wait | None:
    """A wait that the rank itself reports: for another rank's key in the store, which neither a
    recorder nor a stack shows. It polls, so it never looks inactive."""
    beat = view.beat
    if beat is None or beat.waits_for is None:
        return None
    if beat.waits_for not in living and beat.waits_for not in ended:
        return None  # no rank that is known here
    return Wait(
        rank=view.rank,
        op="the store",
        absent=(beat.waits_for,) if beat.waits_for in living else (),
        gone=(beat.waits_for,) if beat.waits_for in ended else (),
        seconds=max(0.0, (scene.evidence_at or scene.now) - max(beat.step_at, scene.started_at)),
    )


def _shown_waiting(view: RankView) -> bool | None:
    """What the stack says; None when it does not show it.

    Work.wait() and .item() leave no frame of their own, so a line of user code proves nothing.
    """
    if not isinstance(view.stack, Stack) or not view.stack.frames:
        return None
    if stacks.in_collective(view.stack) or "/torch/autograd/" in view.stack.frames[0].file:
        return True
    channel = view.activity.wait_channel if view.activity else ""
    if stacks.activity_of(view.stack, wait_channel=channel) in ELSEWHERE:
        return False
    return None


def _timed_out(scene: Scene) -> bool:
    """Ranks have ended, all of them because they timed out or lost a rank that did."""
    ended = exits.endings(scene)
    return bool(ended) and ended[0].consequence == TIMED_OUT and all(e.consequence for e in ended)


def _named(
    graph: WaitGraph, open_ones: Mapping[int, list[Wait]], waits: Mapping[int, Wait]
) -> frozenset[int]:
    """Where waits end. A rank that is in a collective, which all its members have entered, is not
    the one that is missing elsewhere: it waits there, for a GPU or for the network."""
    return frozenset(
        rank
        for rank in graph.ends
        if all(w.only_sends and w.awaited and not w.gone for w in open_ones.get(rank, ()))
        and (rank not in waits or waits[rank].only_sends)
    )


def _roots(
    scene: Scene,
    waits: Mapping[int, Wait],
    living: Mapping[int, RankView],
    named: frozenset[int],
) -> tuple[int, ...]:
    if named:
        return tuple(sorted(named))
    # A rank without a recorder is suspect only when it is the one that does not wait.
    others = [rank for rank in living if rank not in waits]
    if scene.missing_members:
        return ()  # it may as well be one of those
    if len(others) == 1 and (_timed_out(scene) or _in_messages(waits, living)):
        return tuple(others)
    unseen = [rank for rank in others if not isinstance(living[rank].recorder, Recorder)]
    if any(_waits_unseen(scene, living[rank]) for rank in unseen):
        return ()  # each waits for the other: they are in different collectives
    return tuple(unseen) if len(others) == len(unseen) == 1 and len(living) > 1 else ()


def _waits_unseen(scene: Scene, view: RankView) -> bool:
    """In backward(), where DDP's collectives leave no frame, and doing nothing."""
    return bool(_shown_waiting(view)) and scene.now - view.alive_at > IDLE


def _in_messages(waits: Mapping[int, Wait], living: Mapping[int, RankView]) -> bool:
    """All of them wait for a message each, as their stacks show, of unknown senders: the stages of
    a pipeline with Gloo, which records none. Followed, such waits end at a rank that does not wait.
    """
    views = [living[rank] for rank in waits]
    return bool(views) and all(
        isinstance(view.stack, Stack) and stacks.in_message(view.stack) for view in views
    )


def _led_to(
    roots: tuple[int, ...],
    waits: Mapping[int, Wait],
    living: Mapping[int, RankView],
    graph: WaitGraph,
) -> tuple[int, ...]:
    if not roots:
        return ()
    reached = set(roots) | (graph.led & waits.keys())
    unseen = {
        r for r in roots if not isinstance(living[r].recorder, Recorder)
    }  # no recorder can name it, so every rank that waits may wait for it
    if unseen or not any(wait.absent for wait in waits.values()):
        reached |= set(waits)
    return tuple(sorted(reached - set(roots)))


# --- words -------------------------------------------------------------------------------------


def where_is(view: RankView) -> str:
    """'in torch.save() at ckpt.py:40', or what is known instead."""
    if isinstance(view.stack, Stack):
        place = stacks.where(view.stack) or "at a place its stack does not show"
    else:
        place = "at a place that could not be seen"
    phase = view.beat.phase if view.beat else ""
    worker = loader_workers.at_work(view)
    more = "; ".join(filter(None, (worker, f"phase {phase!r}" if phase else "")))
    return f"{place} ({more})" if more else place
