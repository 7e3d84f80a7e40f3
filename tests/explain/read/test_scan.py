"""One pass over a log: every line with an anchor is found, wherever blocks are cut."""

from __future__ import annotations

import io
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.analysis.logs.pattern import LogPattern
from holdfast.explain.read.scan import BLOCK, FOLLOWING, SHOWN, Hit, LogTail, Scanner
from tests.explain.read.packed import Trickle


def log_pattern(name: str, pattern: str, *anchors: str) -> LogPattern:
    return LogPattern(name=name, pattern=pattern, anchors=anchors, example="")


BROKEN = log_pattern("broken", r"link (?P<link>\w+) is broken(?: by (?P<who>\w+))?", "is broken")
TIMEOUT = log_pattern("timeout", r"timed? ?out", "timeout", "timed out")
INSIDE = log_pattern("inside", r"broken", "broken")
SCANNER = Scanner([BROKEN, TIMEOUT, INSIDE])


def hits(data: bytes) -> list[Hit]:
    return list(SCANNER.lines(io.BytesIO(data)))


def numbered(data: bytes) -> list[tuple[int, str]]:
    return [(hit.number, hit.text) for hit in hits(data)]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", []),
        (b"all is well\n", []),
        (b"link a is broken", [(1, "link a is broken")]),
        (b"\n\nlink a is broken\r\nfine\r\n", [(3, "link a is broken")]),
        (b"0%\r50%\rlink a is broken\r100%\ntimeout\n", [(1, "link a is broken"), (2, "timeout")]),
        (b"x\0y link a is broken\0\0\n", [(1, "xy link a is broken")]),
        (b"\xff\xfe timeout \xc3\n", [(1, "\ufffd\ufffd timeout \ufffd")]),
        (b"\x1b[31mlink a is broken\x1b[0m\n", [(1, "link a is broken")]),
        (b"timeout, timeout, timed out\n", [(1, "timeout, timeout, timed out")]),
    ],
)
def test_lines_with_an_anchor_are_found(data: bytes, found: list[tuple[int, str]]) -> None:
    assert numbered(data) == found


def test_offsets_lead_back_to_the_line() -> None:
    data = b"one\ntwo is broken\nthree\nfour timeout\n"
    assert [data[hit.offset :].splitlines()[0].decode() for hit in hits(data)] == [
        "two is broken",
        "four timeout",
    ]


def test_patterns_decide_and_give_their_groups() -> None:
    assert SCANNER.match("link eth0 is broken") == [(BROKEN, {"link": "eth0"}), (INSIDE, {})]
    assert SCANNER.match("it is broken") == [(INSIDE, {})]
    assert SCANNER.match("fine") == []


def test_an_anchor_may_be_in_the_head_that_was_taken_off() -> None:
    scanner = Scanner([log_pattern("warn", r"^no route$", "NCCL WARN")])
    raw = "node1:12:13 [0] NCCL WARN no route"
    assert [s.name for s, _ in scanner.match("no route", raw=raw)] == ["warn"]
    assert scanner.match("no route") == []


def test_lone_surrogates_are_no_trouble() -> None:
    assert SCANNER.match("\udcff timeout") == [(TIMEOUT, {})]


def test_without_patterns_nothing_is_found() -> None:
    assert list(Scanner([]).lines(io.BytesIO(b"timeout\n"))) == []


def test_an_anchor_lies_within_one_line() -> None:
    with pytest.raises(ValueError, match="one line"):
        Scanner([log_pattern("two lines", "a", "first\nsecond")])


# --- where blocks are cut -------------------------------------------------------------------


@given(
    before=st.integers(-60, 20).map(lambda shift: BLOCK + shift),
    separator=st.sampled_from([b"\n", b"\r", b"\r\n"]),
    long_lines=st.booleans(),
)
@example(before=BLOCK - 1, separator=b"\r\n", long_lines=False)
@settings(max_examples=60, deadline=None)
def test_no_line_is_lost_where_a_block_ends(
    before: int, separator: bytes, long_lines: bool
) -> None:
    filler = b"x" * before if long_lines else (b"step 1\n" * (before // 7 + 1))[-before:]
    data = filler + separator + b"link a is broken" + separator + b"link b is broken"
    assert [hit.text for hit in hits(data)] == ["link a is broken", "link b is broken"]
    last = hits(data)[-1]
    assert last.number == data.count(b"\n") + 1
    assert data[last.offset :] == b"link b is broken"


@given(st.lists(st.sampled_from([b"timeout", b"a is broken", b"\n", b"\r", b"fine", b"\xff"])))
@settings(deadline=None)
def test_pieces_of_a_pipe_make_no_difference(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    dribbled = [(h.number, h.text) for h in SCANNER.lines(Trickle(data, 3))]
    assert dribbled == numbered(data)
    expected = sum(b"timeout" in raw or b"is broken" in raw for raw in data.splitlines())
    assert len(dribbled) == expected


# --- lines without an end -------------------------------------------------------------------


def test_of_a_long_line_the_part_around_the_anchor_is_shown() -> None:
    (hit,) = hits(b"a" * 9_000 + b" link x is broken " + b"b" * 9_000)
    assert len(hit.text) == SHOWN
    assert "link x is broken" in hit.text
    assert hit.text.startswith("a" * 900)


def test_a_long_line_is_whole_where_it_can_be() -> None:
    (hit,) = hits(b"[rank3]: timeout " + b"b" * 9_000)
    assert hit.text.startswith("[rank3]: timeout bbb")


@given(st.integers(-40, 40))
@settings(max_examples=30, deadline=None)
def test_an_anchor_on_the_cut_of_an_endless_line_is_found_once(shift: int) -> None:
    data = b"." * (BLOCK + shift) + b" link x is broken " + b"." * BLOCK
    found = hits(data)
    assert len(found) == 1
    assert " link x is broken " in found[0].text


class Endless:
    """So many bytes of one line."""

    def __init__(self, length: int) -> None:
        self._left = length
        self._filler = b"z" * BLOCK

    def read(self, count: int, /) -> bytes:
        data = self._filler[: min(count, self._left)]
        self._left -= len(data)
        return data


def test_a_line_of_100_mb_is_read_in_flat_memory() -> None:
    endless = Endless(100 << 20)
    tracemalloc.start()
    found = list(SCANNER.lines(endless))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == []
    assert peak < 16 << 20


def test_a_line_full_of_anchors_is_shown_once_a_window() -> None:
    found = hits(b"timeout " * 250_000)
    assert 2_000_000 // SHOWN <= len(found) <= 2 * 2_000_000 // SHOWN


# --- what follows, and the end --------------------------------------------------------------


def test_the_lines_after_a_hit_are_at_hand() -> None:
    data = b"timeout\n  File a\r\n\x1b[1m    b()\x1b[0m\nlast"
    assert hits(data)[0].after(FOLLOWING) == ["  File a", "    b()", "last"]
    assert hits(data)[0].after(1) == ["  File a"]


def test_so_are_those_in_the_next_block() -> None:
    data = b"step\n" * (BLOCK // 5 - 2) + b"timeout\n" + b"".join(b"%d\n" % n for n in range(200))
    (hit,) = hits(data)
    assert hit.after(FOLLOWING) == [str(n) for n in range(FOLLOWING)]


@given(st.integers(0, 3 * BLOCK // 100))
@settings(max_examples=20, deadline=None)
def test_the_tail_is_the_end_of_the_source(count: int) -> None:
    tail = LogTail()
    data = b"".join(b"%099d\n" % number for number in range(1, count + 1))
    assert list(SCANNER.lines(io.BytesIO(data), tail=tail)) == []
    shown = tail.lines()
    assert [(number, int(text)) for number, text in shown] == [
        (number, number) for number in range(count - len(shown) + 1, count + 1)
    ]
    assert len(shown) >= min(count, 650)


def test_the_tail_shows_a_progress_bar_as_the_terminal_did() -> None:
    tail = LogTail()
    list(SCANNER.lines(io.BytesIO(b"start\n\n10%\r20%\r30%\r\nend \x1b[0m"), tail=tail))
    assert tail.lines() == [(1, "start"), (3, "30%"), (4, "end ")]


def test_the_tail_of_an_endless_line_is_bounded() -> None:
    tail = LogTail()
    list(SCANNER.lines(io.BytesIO(b"q" * (3 * BLOCK)), tail=tail))
    assert tail.lines() == []


def test_the_tail_of_a_long_progress_bar_is_its_last_state() -> None:
    tail = LogTail()
    bar = b"".join(b"%d%%|###\r" % number for number in range(100_000))
    list(SCANNER.lines(io.BytesIO(b"start\n" + bar), tail=tail))
    assert tail.lines() == [(2, "99999%|###")]
