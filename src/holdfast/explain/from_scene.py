"""A job that still runs, as wreckage: what was seen of its ranks, and the verdict on it. Pure."""

from __future__ import annotations

from collections.abc import Collection

from holdfast import text
from holdfast.analysis.collectives.waits import where_is
from holdfast.analysis.logs import stack_positions
from holdfast.analysis.logs.wreckage import LiveVerdict, LogLine, RankRemains, Wreckage
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import RankView, Scene, Stack
from holdfast.findings import Evidence, Verdict


def wreckage(
    scene: Scene, verdict: Verdict | None, *, standstill: bool, world: int | None = None
) -> Wreckage:
    """`standstill`: no rank that could wait for another has moved.

    In a job that makes progress, some rank is elsewhere at any moment: stacks are evidence only
    where those that wait did not change. The verdict has used the recorders already; it knows how
    old their entries are.
    """
    return Wreckage(
        ranks=tuple(_remains(view, scene, stands=standstill) for view in scene.ranks),
        live_verdicts=(_told(verdict),) if verdict else (),
        world_size=world,
    )


def places(scene: Scene) -> tuple[Evidence, ...]:
    """Where each rank is: shown even when no rank is to blame."""
    return tuple(
        Evidence(
            quote=where_is(view) + _state(view),
            source=f"stack of pid {view.pid}",
            rank=view.rank,
            host=view.host,
        )
        for view in scene.ranks
    )


def _state(view: RankView) -> str:
    letter = view.activity.state if view.activity else ""
    known = {"T": "stopped", "t": "stopped by a debugger", "D": "inside the kernel", "Z": "dead"}
    return f" ({known[letter]}: state {letter})" if letter in known else ""


def stands_still(scene: Scene, still: Collection[int]) -> bool:
    """Whether stacks tell which rank waits: none has changed, or only those of ranks that wait for
    nothing, while every one that waits did nothing at all. `still`: ranks with the same stack at
    every look."""
    moving = [view for view in scene.ranks if view.rank not in still]
    waiting = [view for view in scene.ranks if _waits_in(view)]
    if not moving:
        return True
    return bool(waiting) and all(view.rank in still and _idle(view, scene) for view in waiting)


def undecided(scene: Scene, still: frozenset[int], world: int | None) -> str:
    """What is odd where no rank can be named; '' for a job that moves as jobs do."""
    unseen = [view.rank for view in scene.ranks if not isinstance(view.stack, Stack)]
    if len(unseen) == len(scene.ranks):
        whys = dict.fromkeys(v.stack.why for v in scene.ranks if isinstance(v.stack, Unread))
        why = f": {next(iter(whys))}" if whys else ""
        return f"No stack could be read, so nothing can be said about this job{why}."
    waiting = {view.rank: place for view in scene.ranks if (place := _waits_in(view))}
    stuck = [view for view in scene.ranks if view.rank in still and _idle(view, scene)]
    places = text.names(sorted(set(waiting.values())))
    if len(waiting) == len(scene.ranks) == len(stuck):
        differ = len(set(waiting.values())) > 1
        more = (
            f"The job has {world} ranks: look at those on the other machines too."
            if world and world > len(scene.ranks)
            else "They are not in the same one: where ranks call different collectives, or one "
            "with different sizes, none of them ends (`holdfast explain collective-mismatch`). "
            "Compare the lines below; which rank is wrong they do not show."
            if differ
            else "If that lasts, they wait for something that no stack shows: the network, a GPU, "
            "or another group's collective."
        )
        return f"Every rank here waits in {places} and did nothing meanwhile. {more}"
    others = [view.rank for view in scene.ranks if view.rank not in waiting]
    if waiting and others and still.issuperset(waiting):
        return (
            f"{text.ranks(waiting).capitalize()} {text.plural(waiting, 'is', 'are')} in {places}, "
            f"{text.ranks(others)} elsewhere. Ranks that compute look like this as well, so no "
            "rank is named. Look again: if they are still there, those elsewhere are waited for."
        )
    if len(stuck) == len(scene.ranks):
        return (
            "No rank did anything meanwhile, and none is in a collective: see below where they "
            "are. If that lasts, the job hangs there."
        )
    return ""


def _waits_in(view: RankView) -> str:
    return stack_positions.waits_in(view.stack) if isinstance(view.stack, Stack) else ""


def _idle(view: RankView, scene: Scene) -> bool:
    return view.alive_at is not None and view.alive_at < scene.now


def _remains(view: RankView, scene: Scene, *, stands: bool) -> RankRemains:
    return RankRemains(
        rank=view.rank,
        local_rank=view.local_rank,
        host=view.host,
        pid=view.pid,
        stack=view.stack if stands and isinstance(view.stack, Stack) else None,
        idle=_idle(view, scene),
    )


def _told(verdict: Verdict) -> LiveVerdict:
    seen = verdict.evidence[0] if verdict.evidence else Evidence(quote=verdict.reason)
    return LiveVerdict(
        code=verdict.code,
        slug=verdict.slug,
        ranks=verdict.ranks,
        victims=verdict.victims,
        reason=verdict.reason,
        fix=verdict.fix,
        verdict=verdict.certain,
        line=LogLine(text=seen.quote, source=seen.source or "seen now", number=0),
    )
