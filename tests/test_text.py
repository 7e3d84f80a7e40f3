"""Durations, sizes and rank lists as people say them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import text


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 minute"), (7300, "2 hours"), (90000, "1 day")],
)
def test_span(seconds: float, said: str) -> None:
    assert text.duration(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [(0, "0 bytes"), (1000, "1000 bytes"), (1 << 26, "64 MiB"), (3 << 29, "1.5 GiB"),
     (1000 << 30, "1000 GiB"), (5 << 40, "5 TiB"), (5000 << 40, "5000 TiB")],
)  # fmt: skip
def test_size(count: int, said: str) -> None:
    assert text.size(count) == said


@given(st.sets(st.integers(0, 300)))
def test_numbers_can_be_read_back(values: set[int]) -> None:
    back: set[int] = set()
    for part in filter(None, text.numbers(values).split(",")):
        first, _, last = part.partition("-")
        back |= set(range(int(first), int(last or first) + 1))
    assert back == values


def test_numbers_are_compressed() -> None:
    assert text.numbers([7, 0, 1, 2, 3, 4, 6]) == "0-4,6-7"


@given(st.sets(st.integers(0, 2000)))
def test_a_sentence_names_all_ranks_or_says_how_many_more(values: set[int]) -> None:
    said = text.some_numbers(values)
    assert len(said) < 120
    shown, _, more = said.partition(" and ")
    runs = [part.partition("-") for part in filter(None, shown.split(","))]
    named = {n for a, _, b in runs for n in range(int(a), int(b or a) + 1)}
    assert named <= values
    assert len(values) - len(named) == (int(more.removesuffix(" more")) if more else 0)
    assert more or said == text.numbers(values)


@given(st.text(st.characters()), st.integers())
def test_what_is_legible_can_be_encoded_and_stays_what_it_was(said: str, number: int) -> None:
    assert text.printable({said: [said, (number, None)]}) == {
        text.printable(said): [text.printable(said), [number, None]]
    }
    assert len(text.printable(said).encode().decode()) == len(said)
    assert text.printable("plain … text") == "plain … text"


def test_names_in_the_order_people_count() -> None:
    assert text.names(["node-10", "node-9", "node-9"]) == "node-9 and node-10"
    assert text.names(["b"]) == "b"
    assert text.names(["c", "b", "a"]) == "a, b and c"
    assert text.names([f"n{i}" for i in range(64)]) == "n0, n1, n2, n3, n4 and 59 more"
    assert text.names([]) == ""


@given(st.lists(st.text(max_size=6), min_size=1, max_size=12))
def test_names_do_not_depend_on_the_order_given(values: list[str]) -> None:
    assert text.names(values) == text.names(reversed(values))


def test_bandwidth_in_decimal_units() -> None:
    assert text.bandwidth(6.1e6) == "6.1 MB/s"
    assert text.bandwidth(48e9) == "48 GB/s"
    assert text.bandwidth(391e9) == "391 GB/s"
    assert text.bandwidth(12) == "12 bytes/s"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("é 漢 ✓", "é 漢 ✓"),
        ("user\u202egnp.exe", r"user\u202egnp.exe"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("admin\u200d", r"admin\u200d"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("tag\U000e0041", r"tag\udb40\udc41"),
    ],
)
def test_what_cannot_be_seen_is_written_out(value: str, shown: str) -> None:
    assert text.visible(value) == shown
    assert json.loads(text.visible(json.dumps({"a": value}, ensure_ascii=False))) == {"a": value}
