"""The real process. Patterns that would take for ever cost a second of processor time each."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.system import rule_process, rule_worker
from holdfast.system.rule_process import RuleProcess, SearchedPattern

GENEROUS = 60.0
Start = Callable[..., RuleProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[RuleProcess] = []

    def begin(*patterns: str | SearchedPattern, **options: Any) -> RuleProcess:
        told = [SearchedPattern(pattern=p) if isinstance(p, str) else p for p in patterns]
        started.append(RuleProcess(told, **options))
        return started[-1]

    yield begin
    for one in started:
        one.close()


def found(search: RuleProcess) -> list[tuple[int, int, str]]:
    assert search.wait(GENEROUS)
    return [(hit.pattern, hit.number, hit.line) for hit in search.poll()]


def test_whole_lines_are_searched_whatever_pieces_they_come_in(start: Start) -> None:
    search = start("err(or)?: .*", "^step")
    for piece in (
        b"step 1\ner",
        b"ror: \x1b[31mdisk\x1b[0m\n",
        b"  step 2\r",
        b"step 3\rhalf err: ",
    ):
        search.feed(7, piece, at=1.0)
    assert found(search) == [(1, 1, "step 1"), (0, 2, "error: disk"), (1, 3, "step 3")]
    search.end(7, at=2.0)
    assert found(search) == [(0, 3, "half err: ")]


def test_numbers_are_read_and_compared(start: Start) -> None:
    search = start(SearchedPattern(pattern=r"loss=(\S+)", number=True, above=10, below=-10))
    search.feed(0, b"loss=5\nloss=1,000.5\nloss=-1e3\nloss=nan\nloss=inf\nloss=oops\n", at=1.0)
    assert search.wait(GENEROUS)
    hits = search.poll()
    assert [hit.beyond for hit in hits] == [False, True, True, False, True, False]
    assert [hit.value for hit in hits][:3] == [5.0, 1000.5, -1000.0]
    assert (hits[-1].value, hits[-1].not_a_number) == (None, "loss=oops")


def test_a_line_start_may_be_behind_a_launchers_prefix(start: Start) -> None:
    search = start(SearchedPattern(pattern="^loss", after_prefix=True), "^loss")
    search.feed(0, b"loss 1\n[rank0]: loss 2\nthe loss\n", at=1.0)
    assert search.wait(GENEROUS)
    assert [(hit.pattern, hit.number, hit.start) for hit in search.poll()] == [
        (0, 1, 0), (0, 2, 9), (1, 1, 0)
    ]  # fmt: skip


def test_a_pattern_without_end_is_dropped_and_the_others_lose_nothing(start: Start) -> None:
    search = start("loss", r"^(a|aa)+$", "after")
    before = time.process_time()
    search.feed(0, b"loss\n" + b"a" * 3000 + b"!\nafter\n", at=5.0)
    assert time.process_time() - before < 1.0  # whoever feeds it does not search
    assert search.searched_until(9.0) == 5.0
    assert found(search) == [(0, 1, "loss"), (2, 3, "after")]
    (failure,) = search.failures()
    assert failure.pattern == 1
    assert "processor time" in failure.why
    assert search.searched_until(9.0) == 9.0
    search.feed(0, b"after all\n", at=6.0)
    assert found(search) == [(2, 4, "after all")]


@pytest.mark.long
def test_when_no_pattern_is_left_nothing_is_fed(start: Start) -> None:
    search = start(r"(.*?,){20}P")
    search.feed(0, b"1," * 1500 + b"xPx\n", at=1.0)  # polynomial, and far too much of it
    assert found(search) == []
    assert [failure.pattern for failure in search.failures()] == [0]
    search.feed(0, b"1\n", at=1.0)
    assert search.searched_until(3.0) == 3.0


def test_a_process_that_was_killed_is_started_again(start: Start) -> None:
    search = start("loss")
    search.feed(0, b"loss 1\n", at=1.0)
    assert found(search) == [(0, 1, "loss 1")]
    for number in range(2, rule_process.STARTS + 2):
        assert search._process
        os.kill(search._process.pid, signal.SIGKILL)
        search.feed(0, b"loss\n", at=1.0)
        assert found(search) == [(0, number, "loss")]
    assert search._process
    os.kill(search._process.pid, signal.SIGKILL)
    search.feed(0, b"loss\n", at=1.0)
    assert found(search) == []
    (failure,) = search.failures()
    assert failure.pattern is None


def test_what_is_too_much_is_left_out_and_counted(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rule_process, "QUEUE", 1000)
    search = start("x")
    search.feed(0, b"no\n" * 300 + b"x\n", at=1.0)
    search.feed(0, b"x" * 999 + b"\n", at=1.0)
    assert search.wait(GENEROUS)
    assert len(search.poll()) == 1
    assert search.left_out() in (0, 1000)  # 0 where the first had been searched by then
    assert search.left_out() == 0


def test_reports_are_apart_and_count_what_is_between(start: Start) -> None:
    search = start("x", apart=1.0)
    for at in (1.0, 1.2, 1.9, 2.1, 2.2, 9.0):
        search.feed(0, b"x\n", at=at)
    search.feed(1, b"x\n", at=1.2)  # of another rank
    assert search.wait(GENEROUS)
    assert [(hit.stream, hit.at, hit.lines) for hit in search.poll()] == [
        (0, 1.0, 1), (0, 2.1, 3), (0, 9.0, 2), (1, 1.2, 1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("loss=(?P<value>[0-9.]+) at step", " at step"),
        ("(?:abc|abd)e?", "ab"),
        ("abc|xyz", ""),
        ("(?i)loss", ""),
        ("(loss)+", ""),
        ("(loss) x?", "loss"),
        (r"^tok/s: \d+", "tok/s: "),
        ("größe", "größe"),
        ("x*", ""),
        ("(?i:loss) is", " is"),
        ("(", ""),
    ],
)
def test_the_literal_is_in_every_line_that_matches(pattern: str, literal: str) -> None:
    assert rule_worker.needed_literal(pattern) == literal
