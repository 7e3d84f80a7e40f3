"""Dumps of every version, and what is none."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.collectives import dump_file
from holdfast.analysis.scene.scene import Frame, Recorder
from tests.analysis.collectives.dumped import (
    LINES,
    START,
    document,
    entry,
    message,
    recorder,
    up_to,
)


def read(whole: Any, **options: int) -> Recorder:
    return dump_file.read(pickle.dumps(whole, protocol=2), **options)


def without(made: dict[str, Any], *names: str, **more: Any) -> dict[str, Any]:
    return {name: value for name, value in made.items() if name not in names} | more


# --- versions ------------------------------------------------------------------------------------

NEW = ("process_group", "collective_seq_id", "p2p_seq_id", "op_id", "is_p2p", "input_dtypes")
V2_2 = [
    without(
        entry(n, done=n < 3),
        *(*NEW, "time_created_ns", "timeout_ms", "record_id"),
        seq_id=n,
        time_created_us=(START + n) * 1_000_000,
    )
    for n in (1, 2, 3)
]
V2_3 = {"version": "1.1", "entries": [without(entry(n, done=n < 3), *NEW, seq_id=n)
                                      for n in (1, 2, 3)]}  # fmt: skip
V2_13 = document(*up_to(3, waits=True), groups={"0": (0, 1)})


@pytest.mark.parametrize(
    "whole", [V2_2, V2_3, V2_13], ids=["torch 2.2: a list", "torch 2.3: 1.1", "torch 2.13: 2.10"]
)
def test_every_version_tells_the_same_positions(whole: Any) -> None:
    seen = read(whole)
    assert (seen.entered, seen.finished) == ({"0": 3}, {"0": 2})
    last = seen.collectives[-1]
    assert (last.op, last.backend, last.created) == ("all_reduce", "nccl", START + 3.0)
    assert last.frames[1] == Frame(function="step", file="/home/user/train.py", line=30)


def test_the_newest_tells_members_timeouts_and_shapes() -> None:
    seen = read(V2_13)
    assert seen.members == {"0": (0, 1)}
    assert (seen.collectives[-1].timeout, seen.collectives[-1].shape) == (600.0, "[4] Float")


def test_json_says_the_same_as_the_pickle_without_the_stacks() -> None:
    """Numbers as texts, ranks as a list, 0 for None: all of that has been seen."""
    plain = document(
        *(without(made, "frames", time_discovered_started_ns=0, collective_seq_id=str(n))
          for n, made in enumerate(up_to(3, waits=True), start=1))
    )  # fmt: skip
    plain["pg_config"] = {"0": {"name": "0", "desc": "", "ranks": [0, 1]}}
    seen = dump_file.read(json.dumps(plain).encode())
    assert (seen.entered, seen.finished, seen.members) == ({"0": 3}, {"0": 2}, {"0": (0, 1)})


@pytest.mark.parametrize("entries", [{}, {"entries": []}, {"entries": None}])
def test_nothing_recorded_leaves_the_counters(entries: dict[str, Any]) -> None:
    counters = {"last_enqueued_collective": "12", "last_completed_collective": "11"}
    seen = read({"version": "2.9", "pg_status": {"0": counters}, **entries})
    assert (seen.entered, seen.finished, seen.collectives) == ({"0": 12}, {"0": 11}, ())


def test_a_rank_that_never_began_has_entered_nothing() -> None:
    never = {"last_enqueued_collective": -1, "last_completed_collective": -1}
    assert read({"version": "2.10", "pg_status": {"0": never}}).entered == {}
    assert read({"version": "2.10", "pg_config": {}}).entered == {}


def test_what_our_own_run_asked_for_may_be_two_documents() -> None:
    gloo = document(entry(3, profiling_name="gloo:barrier", done=False, state="scheduled"))
    seen = dump_file.read(json.dumps([document(*up_to(9)), gloo]).encode())
    assert seen.entered == {"0": 9, "0 (gloo)": 3}


# --- what is over --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "over"),
    [
        ({"retired": True, "state": "completed"}, True),
        ({"retired": False, "state": "completed"}, False),
        ({"retired": True, "state": "scheduled"}, False),
        ({"retired": True, "state": "scheduled", "profiling_name": "gloo:all_reduce"}, True),
        ({"retired": None, "state": "completed"}, True),
        ({"retired": None, "state": "started"}, False),
    ],
    ids=["done", "not yet put away", "its time ran out", "Gloo never says", "old", "old, open"],
)
def test_which_entries_are_over(changes: dict[str, Any], over: bool) -> None:
    assert recorder(entry(5, **changes)).collectives[0].finished is over


def test_what_the_ring_has_lost_is_over() -> None:
    seen = recorder(entry(700, done=False), entry(701, done=False))
    assert seen.finished == {"0": 699}


def test_the_parts_of_a_coalesced_collective_end_with_the_whole() -> None:
    whole = entry(1, profiling_name="nccl:coalesced", input_sizes=[], input_dtypes=[])
    seen = recorder(entry(1, done=False), entry(1, done=False), whole)
    assert [c.finished for c in seen.collectives] == [True, True, True]


def test_messages_are_kept_apart() -> None:
    seen = recorder(entry(1), message(1, "send 0->1"), message(2, "recv 0<-1", done=False))
    assert seen.entered == {"0": 1}
    assert [(m.op, m.sequence, m.finished) for m in seen.messages] == [
        ("send 0->1", 1, True),
        ("recv 0<-1", 2, False),
    ]


def test_messages_of_old_dumps_are_known_by_their_names() -> None:
    old = without(message(1, "send 0->1"), *NEW, seq_id=4)
    assert read([old]).messages[0].sequence == 4


# --- how much is kept ----------------------------------------------------------------------------


def test_only_what_can_matter_is_kept() -> None:
    seen = read(document(*up_to(500), *up_to(9, "tp", waits=True)), keep=20)
    groups = [c.group for c in seen.collectives]
    assert (groups.count("0"), groups.count("tp")) == (20, 9)
    assert seen.entered == {"0": 500, "tp": 9}
    assert sum(bool(c.frames) for c in seen.collectives) < 10


def test_a_rank_that_ran_ahead_keeps_the_first_open_one() -> None:
    ahead = [entry(n, done=n <= 100) for n in range(1, 501)]
    kept = {c.sequence: c for c in read(document(*ahead), keep=20).collectives}
    assert {100, 101, 120, 500} <= kept.keys()
    assert kept[101].frames
    assert len(kept) < 80


# --- what is none --------------------------------------------------------------------------------


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("it ran",))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\x80\x04.",
        b"hello",
        b"null",
        b"{}",
        b"[7]",
        b'{"entries": 7}',
        b'{"entries": [{}]}',
        b"[" * 100_000,
        pickle.dumps(7),
        pickle.dumps(_Evil()),
        pickle.dumps({"entries": [_Evil()]}),
        pickle.dumps({"entries": [entry(1, process_group=())]}),
        pickle.dumps({"entries": [entry(1, collective_seq_id="many")]}),
        pickle.dumps({"entries": [entry(1, profiling_name="nccl:\x1b]0;owned\x07")]}),
        pickle.dumps(document(*up_to(3)))[:-20],
        b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00truetR.",
        b"\x80\x02X\x01\x00\x00\x00aQ.",
        b"\x80\x02\x82\x01.",
    ],
)
def test_what_is_no_dump_is_refused(data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="not a flight recorder's dump"):
        dump_file.read(data)
    assert capsys.readouterr().out == ""


plain = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary()
values = st.recursive(
    plain,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=8,
)
strange = st.dictionaries(st.sampled_from(sorted(entry(1))), values)


@given(
    st.binary().filter(lambda data: data[:1] != b"\x80")  # crafted ones: tests/wreckage
    | values.map(pickle.dumps)
    | st.lists(strange).map(lambda listed: pickle.dumps({"entries": listed}))
    | st.lists(st.builds(lambda odd: entry(1) | odd, strange)).map(pickle.dumps)
)
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        seen = dump_file.read(data)
    except ValueError:
        return
    assert seen.entered.keys() == seen.finished.keys()


@given(
    st.lists(st.tuples(st.integers(1, 40), st.sampled_from("ab"), st.booleans()), max_size=40),
    st.integers(1, 8),
)
def test_positions_do_not_depend_on_how_much_is_kept(
    rows: list[tuple[int, str, bool]], keep: int
) -> None:
    ordered = sorted(rows)
    made = document(*(entry(n, g, done=over) for n, g, over in ordered))
    whole, part = read(made), read(made, keep=keep)
    assert (part.entered, part.finished) == (whole.entered, whole.finished)
    assert len(part.collectives) <= len(whole.collectives)


def test_lines_are_innermost_first() -> None:
    frames = recorder(entry(1)).collectives[0].frames
    assert [f.function for f in frames] == [line["name"] for line in LINES]
