"""Reports come out as they went in, by the coordinator's clocks, and small."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect
from msgspec.structs import replace

from holdfast.analysis.collectives.reduced_recorder import reduced
from holdfast.analysis.scene.clock_shift import ClockShift, moved
from holdfast.analysis.scene.cpu import CpuLook
from holdfast.analysis.scene.scene import Beat, RankView, Recorder
from holdfast.run.nodes.link.report_codec import (
    QuickBeat,
    QuickLook,
    RankUpdate,
    ReportDecoder,
    ReportEncoder,
    ReportUpdate,
)
from holdfast.run.nodes.link.wire_messages import FromLauncher, Said
from holdfast.run.nodes.messages import NodeReport
from tests.analysis.scene.test_clock_shift import filled
from tests.run.scenes import NOW, a_beat, a_rank, an_activity, waiting
from tests.run.watch.test_verdict import rank_views

SHIFT = ClockShift(monotonic=-5000.25, wall=70.5)
_decoder = msgspec.msgpack.Decoder(FromLauncher)


def a_report(*ranks: RankView, **fields: Any) -> NodeReport:
    return NodeReport(**{"round": 1, "at": NOW, "ranks": ranks, **fields})


def expected(report: NodeReport, shift: ClockShift = SHIFT, bound: float = 0.01) -> NodeReport:
    def of(view: RankView) -> RankView:
        if isinstance(view.recorder, Recorder):
            view = replace(view, recorder=reduced(view.recorder))
        return moved(view, shift)

    return replace(
        report,
        at=shift.moment(report.at),
        clock_bound=bound,
        evidence_at=shift.moment(report.evidence_at),
        evidence_wall=shift.wall_moment(report.evidence_wall),
        slept_at=shift.moment(report.slept_at),
        ranks=tuple(map(of, report.ranks)),
    )


def wired(update: ReportUpdate) -> bytes:
    return msgspec.msgpack.encode(Said(1, update))


def across(update: ReportUpdate) -> ReportUpdate:
    there: Said = _decoder.decode(wired(update))
    assert isinstance(there.message, ReportUpdate)
    return there.message


def full(rank: int = 3) -> RankView:
    view: RankView = filled(inspect.type_info(RankView), itertools.count())
    return replace(view, rank=rank)


def test_nothing_of_a_rank_is_left_out() -> None:
    encoder, decoder = ReportEncoder(), ReportDecoder()
    for report in (a_report(full()), a_report(full()), a_report(full(), full(4))):
        got = decoder.report(across(encoder.update(report, SHIFT, 0.01)))
        assert got == expected(report)


def test_nothing_of_a_report_is_left_out() -> None:
    fields = {f.name: f.type for f in inspect.type_info(NodeReport).fields}  # type: ignore[attr-defined]
    count = itertools.count()
    own = {name: filled(t, count) for name, t in fields.items() if name not in ("ranks", "events")}
    report = a_report(full(), **own, events=((3, {"kind": "saved", "step": 7}),))
    encoder, decoder = ReportEncoder(), ReportDecoder()
    for one in (report, replace(report, events=()), replace(report, oom_kills=5)):
        assert decoder.report(across(encoder.update(one, SHIFT, 0.01))) == expected(one)


def test_a_beat_is_claims_and_what_moves() -> None:
    claims = {"claim", "former_claim", "exit_call"}
    assert set(QuickBeat.__struct_fields__) | claims == set(Beat.__struct_fields__)


@st.composite
def reports(draw: st.DrawFn) -> list[NodeReport]:
    made = []
    for number in range(draw(st.integers(1, 6))):
        ranks = draw(st.lists(st.integers(0, 3), unique=True, max_size=4))
        views = [draw(rank_views(rank)) for rank in ranks]
        first = draw(st.integers(0, 5))
        looks = tuple(
            CpuLook(at=NOW + n, ran=float(n), queued=0.0) for n in range(first, first + number)
        )
        views = [replace(view, looks=looks) for view in views]
        made.append(a_report(*views, oom_kills=draw(st.integers(-1, 1)), at=NOW + number))
    return made


SHIFTS = st.sampled_from([SHIFT, ClockShift(0.0, 0.0), ClockShift(3600.0, -1.5)])


@given(reports(), st.lists(SHIFTS, min_size=6, max_size=6))
def test_any_row_of_reports_comes_out_as_it_went_in(
    row: list[NodeReport], shifts: list[ClockShift]
) -> None:
    encoder, decoder = ReportEncoder(), ReportDecoder()
    for report, shift in zip(row, shifts, strict=False):
        got = decoder.report(across(encoder.update(report, shift, 0.5)))
        assert got == expected(report, shift, 0.5)


def training(second: float) -> NodeReport:
    """Eight ranks that train, `second` seconds later."""
    looks = tuple(CpuLook(at=NOW + n, ran=n * 0.9, queued=0.1) for n in range(int(second), 60))
    claim = full().beat.claim  # type: ignore[union-attr]
    ranks = (
        a_rank(
            rank,
            beat=a_beat(
                steps=123456 + int(second),
                step_at=NOW + second + 0.123,
                beat_at=NOW + second + 0.1,
                phase="evaluation",
                claim=claim,
            ),
            activity=an_activity(cpu=second * 7.3, io=10**11, socket=10**11, queued=1.25),
            alive_at=NOW + second + 0.11,
            looks=looks,
            recorder=waiting(),
        )
        for rank in range(8)
    )
    return a_report(*ranks, at=NOW + second)


def test_a_rank_costs_two_hundred_bytes_a_report() -> None:
    encoder = ReportEncoder()
    first = len(wired(encoder.update(training(0.0), SHIFT, 0.01)))
    later = [len(wired(encoder.update(training(s), SHIFT, 0.01))) for s in (0.2, 0.4, 1.1, 1.3)]
    assert max(later) <= 8 * 200
    assert first > 4 * max(later)


def test_a_changed_clock_sends_everything_again() -> None:
    encoder = ReportEncoder()
    first = len(wired(encoder.update(training(0.0), SHIFT, 0.01)))
    other = SHIFT._replace(wall=71.0)
    assert len(wired(encoder.update(training(0.0), other, 0.01))) > 0.9 * first


def a_rank_update(rank: int = 0, **fields: Any) -> RankUpdate:
    return RankUpdate(
        **{
            "rank": rank, "alive_at": 0.0, "state_since": 0.0, "beat": None, "activity": None,
            "looks_kept": 0, "looks": (), "slow": a_rank(rank), **fields,
        }
    )  # fmt: skip


BAD = {
    "no beginning": ReportUpdate(at=1.0, bound=0.0, ranks=()),
    "no beginning of a rank": ReportUpdate(
        at=1.0, bound=0.0, ranks=(a_rank_update(slow=None),), rest=a_report()
    ),
    "another rank": ReportUpdate(
        at=1.0, bound=0.0, ranks=(a_rank_update(slow=a_rank(1)),), rest=a_report()
    ),
    "a rank twice": ReportUpdate(
        at=1.0, bound=0.0, ranks=(a_rank_update(), a_rank_update()), rest=a_report()
    ),
    "looks never sent": ReportUpdate(
        at=1.0, bound=0.0, ranks=(a_rank_update(looks_kept=1),), rest=a_report()
    ),
    "looks kept below none": ReportUpdate(
        at=1.0, bound=0.0, ranks=(a_rank_update(looks_kept=-1),), rest=a_report()
    ),
    "too many looks": ReportUpdate(
        at=1.0,
        bound=0.0,
        ranks=(a_rank_update(looks=(QuickLook(0.0, 0.0, 0.0),) * 700),),
        rest=a_report(),
    ),
    "too many ranks": ReportUpdate(
        at=1.0, bound=0.0, ranks=tuple(map(a_rank_update, range(1100))), rest=a_report()
    ),
    "no time": ReportUpdate(at=float("nan"), bound=0.0, ranks=(), rest=a_report()),
}


@pytest.mark.parametrize("update", BAD.values(), ids=BAD)
def test_what_does_not_fit_is_refused(update: ReportUpdate) -> None:
    with pytest.raises(ValueError, match="a report"):
        ReportDecoder().report(across(update))


PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner)
)


@given(st.data())
def test_a_changed_message_is_refused_or_read(data: st.DataObject) -> None:
    """Real ones with anything in place of any part: nothing but ValueError."""
    update = ReportEncoder().update(a_report(full()), SHIFT, 0.01)
    whole: Any = msgspec.msgpack.decode(wired(update))
    at = whole
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        deeper = isinstance(at[key], (dict, list)) and at[key] and data.draw(st.booleans())
        if not deeper:
            break
        at = at[key]
    at[key] = data.draw(VALUES)
    try:
        said = _decoder.decode(msgspec.msgpack.encode(whole))
        if isinstance(said, Said) and isinstance(said.message, ReportUpdate):
            ReportDecoder().report(said.message)
    except (msgspec.DecodeError, ValueError):
        pass
