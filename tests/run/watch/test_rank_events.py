"""Files of events, read while they grow."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.job.journal_records import SavedRecord
from holdfast.run.watch import rank_events
from holdfast.run.watch.rank_events import EventListener, GrowingFile

SAVED = {"kind": "saved", "t": 1.0, "step": 40, "path": "/c", "bytes": 1, "stall": 0, "seconds": 1}


def test_only_what_is_new_and_whole_is_read(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    tail = GrowingFile(str(file))
    assert tail.new() == [], "not there yet"
    file.write_bytes(b'{"kind": "a"}\n{"kind": "b"}\n{"ki')
    assert [event["kind"] for event in tail.new()] == ["a", "b"]
    assert tail.new() == []
    with file.open("ab") as more:
        more.write(b'nd": "c"}\n')
    assert [event["kind"] for event in tail.new()] == ["c"]
    assert tail.new() == []


def test_a_line_without_end_does_not_hold_up_those_after_it(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(b"x" * (2 * rank_events.LARGEST_READ) + b'\n{"kind": "a"}\n')
    tail = GrowingFile(str(file))
    heard = [event["kind"] for _ in range(4) for event in tail.new()]
    assert heard == ["a"]


@given(st.binary(max_size=300))
def test_no_bytes_break_the_listener(content: bytes) -> None:
    for line in content.split(b"\n"):
        event = rank_events._parse(line)
        assert event is None or isinstance(event["kind"], str)


def test_attempts_are_told_apart_and_the_last_words_of_one_are_heard(tmp_path: Path) -> None:
    first, second = tmp_path / "0", tmp_path / "1"
    listener = EventListener()
    listener.begin(0, {0: str(first)}, steps=0)
    listener.read(100.0)
    first.write_text(json.dumps(SAVED) + "\n")
    listener.read(100.5)
    assert listener.news() == [], "once a second is enough"
    listener.begin(1, {0: str(second)}, steps=57)
    (told,) = listener.news()
    assert isinstance(told.record, SavedRecord)
    assert (told.record.attempt, told.record.rank) == (0, 0)
    assert (listener.account.reached, listener.account.base) == (57, 0)
    second.write_text(json.dumps(SAVED | {"step": 80}) + "\n")
    listener.read(100.6, at_once=True)
    (told,) = listener.news()
    assert told.record
    assert told.record.attempt == 1
    assert [saved.step for saved in listener.account.saves] == [40, 80]
