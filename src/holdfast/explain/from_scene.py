"""A job that still runs, as wreckage: what was seen of its ranks, and the verdict on it. Pure."""

from __future__ import annotations

from holdfast.analysis.collectives.waits import where_is
from holdfast.analysis.logs.wreckage import LiveVerdict, LogLine, RankRemains, Wreckage
from holdfast.analysis.scene.scene import RankView, Scene, Stack
from holdfast.findings import Evidence, Verdict


def wreckage(
    scene: Scene, verdict: Verdict | None, *, standstill: bool, world: int | None = None
) -> Wreckage:
    """`standstill`: the stack of every rank was the same at both looks.

    In a job that makes progress, some rank is elsewhere at any moment: stacks are evidence only
    where none of them changed. The verdict has used the recorders already; it knows how old their
    entries are.
    """
    return Wreckage(
        ranks=tuple(_remains(view, stands=standstill) for view in scene.ranks),
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


def _remains(view: RankView, *, stands: bool) -> RankRemains:
    return RankRemains(
        rank=view.rank,
        local_rank=view.local_rank,
        host=view.host,
        pid=view.pid,
        stack=view.stack if stands and isinstance(view.stack, Stack) else None,
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
