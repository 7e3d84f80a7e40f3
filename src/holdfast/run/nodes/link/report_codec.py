"""Reports as they travel: what moves all the time at each, the rest only when it has changed.

A node sends five reports a second. Of a rank some 150 bytes differ between two of them (counters,
times); claims, last words, stacks and recorders are kilobytes and hardly ever change.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.analysis.collectives.reduced_recorder import reduced
from holdfast.analysis.scene.clock_shift import MONOTONIC, ClockShift, moved
from holdfast.analysis.scene.cpu import CpuLook
from holdfast.analysis.scene.scene import Activity, Beat, RankView, Recorder
from holdfast.run.nodes.messages import NodeReport

MOST_RANKS = 1024
"""of one node"""
MOST_LOOKS = 600
_NO_BEAT = Beat(
    torch_imported=False, group_ready=False, steps=0, step_at=0.0, usual_step=0.0, beat_at=0.0,
    phase="", limit_name="", limit_until=0.0, group_timeout=0.0,
)  # fmt: skip


class QuickBeat(msgspec.Struct, frozen=True, array_like=True):
    """A Beat without what it claims: field by field the same names."""

    torch_imported: bool
    group_ready: bool
    steps: int
    step_at: float
    usual_step: float
    beat_at: float
    phase: str
    limit_name: str
    limit_until: float
    group_timeout: float
    cuda_graphs: bool
    capturing: bool
    waits_for: int | None
    group_left_at: float
    leaving_at: float


class QuickActivity(msgspec.Struct, frozen=True, array_like=True):
    state: str
    cpu: float
    io: int
    socket: int
    faults: int
    wait_channel: str
    queued: float


class QuickLook(msgspec.Struct, frozen=True, array_like=True):
    at: float
    ran: float
    queued: float


class RankUpdate(msgspec.Struct, frozen=True, array_like=True):
    rank: int
    alive_at: float
    state_since: float
    beat: QuickBeat | None
    activity: QuickActivity | None
    looks_kept: int
    """so many of those sent before are still in its list, the newest ones"""
    looks: tuple[QuickLook, ...]
    slow: RankView | None
    """everything else, where it has changed"""


class ReportUpdate(msgspec.Struct, frozen=True, tag=True):
    """A NodeReport, as far as it differs from the one before on this link."""

    at: float
    bound: float
    ranks: tuple[RankUpdate, ...]
    events: tuple[tuple[int, dict[str, Any]], ...] = ()
    rest: NodeReport | None = None


BEAT_TIMES = frozenset(MONOTONIC[Beat])


class ReportEncoder:
    """On a launcher: remembers what the coordinator has. Times are changed only in what is sent."""

    def __init__(self) -> None:
        self._shift: ClockShift | None = None
        self._rest: NodeReport | None = None
        self._ranks: dict[int, tuple[RankView, tuple[CpuLook, ...]]] = {}

    def update(self, report: NodeReport, shift: ClockShift, bound: float) -> ReportUpdate:
        if shift != self._shift:
            self._shift, self._rest, self._ranks = shift, None, {}
        rest = replace(report, at=0.0, clock_bound=0.0, ranks=(), events=())
        changed = rest != self._rest
        ranks = tuple(self._rank(view, shift) for view in report.ranks)
        self._rest = rest
        self._ranks = {view.rank: self._ranks[view.rank] for view in report.ranks}
        return ReportUpdate(
            at=shift.moment(report.at),
            bound=bound,
            ranks=ranks,
            events=report.events,
            rest=_rest_moved(rest, shift) if changed else None,
        )

    def _rank(self, view: RankView, shift: ClockShift) -> RankUpdate:
        slow = _slow(view)
        before, looks = self._ranks.get(view.rank, (None, ()))
        kept = _still_there(looks, view.looks)
        self._ranks[view.rank] = slow, view.looks
        return RankUpdate(
            rank=view.rank,
            alive_at=shift.moment(view.alive_at),
            state_since=shift.moment(view.state_since),
            beat=_quick_beat(view.beat, shift),
            activity=_quick_activity(view.activity),
            looks_kept=kept,
            looks=tuple(
                QuickLook(shift.moment(one.at), one.ran, one.queued) for one in view.looks[kept:]
            ),
            slow=_slow_moved(slow, shift) if slow != before else None,
        )


class ReportDecoder:
    """On the coordinator, one for each launcher. What does not fit raises ValueError."""

    def __init__(self) -> None:
        self._rest: NodeReport | None = None
        self._ranks: dict[int, tuple[RankView, tuple[CpuLook, ...]]] = {}

    def report(self, update: ReportUpdate) -> NodeReport:
        rest = update.rest or self._rest
        if rest is None:
            raise ValueError("a report without a beginning")
        if not (math.isfinite(update.at) and math.isfinite(update.bound)):
            raise ValueError("a report of no time")
        if len(update.ranks) > MOST_RANKS:
            raise ValueError(f"a report of {len(update.ranks)} ranks")
        ranks = {one.rank: self._rank(one) for one in update.ranks}
        if len(ranks) != len(update.ranks):
            raise ValueError("a report that names a rank twice")
        self._rest = rest
        self._ranks = {number: known for number, (_, known) in ranks.items()}
        return replace(
            rest,
            at=update.at,
            clock_bound=update.bound,
            events=update.events,
            ranks=tuple(view for view, _ in ranks.values()),
        )

    def _rank(self, update: RankUpdate) -> tuple[RankView, tuple[RankView, tuple[CpuLook, ...]]]:
        slow, looks = self._ranks.get(update.rank, (None, ()))
        slow = update.slow or slow
        if slow is None or slow.rank != update.rank:
            raise ValueError(f"a report of rank {update.rank} without a beginning")
        if not 0 <= update.looks_kept <= len(looks):
            raise ValueError(f"a report of rank {update.rank} with looks that were never sent")
        kept = looks[len(looks) - update.looks_kept :]
        looks = (*kept, *(CpuLook(at=o.at, ran=o.ran, queued=o.queued) for o in update.looks))
        if len(looks) > MOST_LOOKS:
            raise ValueError(f"a report of rank {update.rank} with {len(looks)} looks")
        view = replace(
            slow,
            alive_at=update.alive_at,
            state_since=update.state_since,
            beat=_whole_beat(update.beat, slow.beat),
            activity=_whole_activity(update.activity),
            looks=looks,
        )
        return view, (slow, looks)


def _slow(view: RankView) -> RankView:
    beat = view.beat
    return replace(
        view,
        activity=None,
        alive_at=0.0,
        state_since=0.0,
        looks=(),
        beat=beat
        and replace(
            _NO_BEAT,
            claim=beat.claim,
            former_claim=beat.former_claim,
            exit_call=beat.exit_call,
        ),
    )


def _slow_moved(slow: RankView, shift: ClockShift) -> RankView:
    """Small enough to be sent, by the coordinator's clocks."""
    if isinstance(slow.recorder, Recorder):
        slow = replace(slow, recorder=reduced(slow.recorder))
    return moved(slow, shift)


def _rest_moved(rest: NodeReport, shift: ClockShift) -> NodeReport:
    return replace(
        rest,
        evidence_at=shift.moment(rest.evidence_at),
        evidence_wall=shift.wall_moment(rest.evidence_wall),
        slept_at=shift.moment(rest.slept_at),
    )


def _still_there(before: tuple[CpuLook, ...], now: tuple[CpuLook, ...]) -> int:
    """How many of the newest that were sent before begin the list now."""
    if not before or not now or now[0] not in before:
        return 0
    kept = len(before) - before.index(now[0])
    return kept if before[-kept:] == now[:kept] else 0


def _quick_beat(beat: Beat | None, shift: ClockShift) -> QuickBeat | None:
    if beat is None:
        return None
    fields: list[Any] = [
        shift.moment(getattr(beat, name)) if name in BEAT_TIMES else getattr(beat, name)
        for name in QuickBeat.__struct_fields__
    ]
    return QuickBeat(*fields)


def _whole_beat(quick: QuickBeat | None, slow: Beat | None) -> Beat | None:
    if quick is None:
        return None
    claims = slow or _NO_BEAT
    return Beat(
        **msgspec.structs.asdict(quick),
        claim=claims.claim,
        former_claim=claims.former_claim,
        exit_call=claims.exit_call,
    )


def _quick_activity(activity: Activity | None) -> QuickActivity | None:
    if activity is None:
        return None
    return QuickActivity(*(getattr(activity, n) for n in QuickActivity.__struct_fields__))


def _whole_activity(quick: QuickActivity | None) -> Activity | None:
    return Activity(**msgspec.structs.asdict(quick)) if quick else None
