"""What ranks report of their numbers; anybody could write into their files."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.job.journal_records import NotFiniteRecord, RankEventRecord
from holdfast.run.watch.numbers_tracker import FRESH, KINDS, MOST, NumbersTracker
from holdfast.run.watch.rank_events import EventListener

SEEN = {"kind": "not-finite", "t": 1.7e9, "what": "loss", "step": 7, "value": "nan", "row": 1}


def test_a_loss_that_is_not_finite_is_kept_with_its_rank_and_journalled() -> None:
    tracker = NumbersTracker(attempt=2)
    assert not tracker.is_fresh(50.0)
    record, sentence = tracker.add(3, SEEN, now=50.0)
    assert isinstance(record, NotFiniteRecord)
    assert (record.attempt, record.rank, record.step, record.told_at) == (2, 3, 7, 1.7e9)
    assert sentence == ""
    (kept,) = tracker.account().not_finite
    assert (kept.attempt, kept.rank, kept.step, kept.value, kept.heard_at) == (2, 3, 7, "nan", 50.0)
    assert tracker.is_fresh(50.0 + FRESH - 1)
    assert not tracker.is_fresh(50.0 + FRESH + 1)


def test_there_is_an_end_to_what_is_kept() -> None:
    tracker = NumbersTracker()
    for step in range(MOST + 10):
        tracker.add(0, SEEN | {"step": step}, now=1.0)
    assert len(tracker.account().not_finite) == MOST


def test_an_attempt_begins_with_nothing() -> None:
    listener = EventListener()
    listener.begin(0, {}, steps=0)
    listener.add(0, SEEN)
    listener.add(0, {"kind": "replicas-not-comparable", "why": "no DDP"})
    assert listener.numbers.account().not_finite
    listener.begin(1, {}, steps=10)
    assert not listener.numbers.account().not_finite
    kinds = [type(news.record).__name__ for news in listener.news()]
    assert kinds == ["NotFiniteRecord", "NoneType", "ReplicasRecord"], "what came of the attempt"


ODD = st.one_of(st.none(), st.integers(-5, 10**30), st.text(max_size=5), st.floats(), st.booleans(),
                st.lists(st.integers(-2, 5), max_size=3))  # fmt: skip
FIELDS = ("step", "number", "members", "ranks", "layout", "parts", "digest", "device", "bytes",
          "gpu", "host", "usual_step", "why", "what", "value", "row", "t")  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(FIELDS), ODD))))
def test_nothing_that_is_written_there_breaks_the_launcher(told: list[tuple[str, Any]]) -> None:
    listener = EventListener()
    for rank, (kind, fields) in enumerate(told):
        listener.add(rank % 3, {**fields, "kind": kind})
    news = listener.news()
    assert len(news) == len(told)
    listener.finish()
    assert all(n.record is None or isinstance(n.record, NotFiniteRecord | RankEventRecord)
               for n in news)  # fmt: skip
