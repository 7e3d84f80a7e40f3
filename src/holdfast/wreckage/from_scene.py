"""A job that still lives, as wreckage: what was seen of its ranks, and the verdict on it. Pure."""

from __future__ import annotations

from holdfast.collectives.waits import where_is
from holdfast.model import Verdict
from holdfast.remains.nouns import Line, RankRemains, Sighting, Told, Wreckage
from holdfast.remains.signature import Role
from holdfast.signals import RankView, Recorder, Scene, Stack


def wreckage(scene: Scene, verdict: Verdict | None) -> Wreckage:
    """Where each rank was is shown even when nobody is to blame."""
    seen = tuple(_place(view, order) for order, view in enumerate(scene.ranks))
    told = (_told(verdict),) if verdict else ()
    return Wreckage(sightings=seen, ranks=tuple(map(_remains, scene.ranks)), told=told)


def _remains(view: RankView) -> RankRemains:
    return RankRemains(
        rank=view.rank,
        local_rank=view.local_rank,
        host=view.host,
        pid=view.pid,
        recorder=view.recorder if isinstance(view.recorder, Recorder) else None,
        dumped=isinstance(view.recorder, Recorder),
        stack=view.stack if isinstance(view.stack, Stack) else None,
    )


def _place(view: RankView, order: int) -> Sighting:
    line = Line(
        text=where_is(view),
        source=f"stack of pid {view.pid}",
        number=0,
        rank=view.rank,
        host=view.host,
        pid=view.pid,
    )
    return Sighting(
        signature="living: place", slug="", role=Role.CONFIRMATION, line=line, order=order
    )


def _told(verdict: Verdict) -> Told:
    return Told(
        code=verdict.code,
        slug=verdict.slug,
        ranks=verdict.ranks,
        victims=verdict.victims,
        reason=verdict.reason,
        fix=verdict.fix,
        verdict=verdict.certain,
        line=Line(text=verdict.reason, source="seen now", number=0),
    )
