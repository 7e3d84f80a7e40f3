"""The page: what is written is what is read, also from another process, also half-written."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.rank import heartbeat_page
from holdfast.rank.heartbeat_page import HeartbeatPage, read, read_limit


@pytest.fixture
def shared() -> Iterator[tuple[int, mmap.mmap]]:
    fd, buffer = heartbeat_page.create()
    yield fd, buffer
    os.close(fd)


def fresh() -> mmap.mmap:
    return mmap.mmap(-1, heartbeat_page.SIZE)


def test_an_untouched_page_says_nothing() -> None:
    assert read(fresh()) is None


def test_all_that_a_rank_says_is_read() -> None:
    buffer = fresh()
    page = HeartbeatPage(buffer)
    page.announce(4711)
    page.torch_imported()
    page.group(ready=True, timeout=1800.0)
    page.step(7, 2_000_000_000, 50_000_000)
    before = time.monotonic()
    page.beat()
    page.phase("evaluation")
    page.limit("forward", 12.5)
    beat = read(buffer)
    assert beat is not None
    assert (beat.torch_imported, beat.group_ready, beat.group_timeout) == (True, True, 1800.0)
    assert (beat.steps, beat.step_at) == (7, 2.0)
    assert beat.usual_step == pytest.approx(0.05)
    assert before <= beat.beat_at <= time.monotonic()
    assert (beat.phase, beat.limit_name, beat.limit_until) == ("evaluation", "forward", 12.5)


def test_the_group_can_end() -> None:
    buffer = fresh()
    page = HeartbeatPage(buffer)
    page.announce(1)
    page.torch_imported()
    page.group(ready=True, timeout=60.0)
    page.group(ready=False, timeout=0.0)
    beat = read(buffer)
    assert beat is not None
    assert (beat.torch_imported, beat.group_ready, beat.group_timeout) == (True, False, 0.0)


def test_a_new_rank_clears_what_an_earlier_one_left() -> None:
    buffer = fresh()
    page = HeartbeatPage(buffer)
    page.announce(1)
    page.step(9, 9, 9)
    page.phase("save")
    page.limit("save", 9.0)
    HeartbeatPage(buffer).announce(2)
    beat = read(buffer)
    assert beat is not None
    assert (beat.steps, beat.step_at, beat.phase, beat.limit_until) == (0, 0.0, "", 0.0)


CLAIM = (
    '{"rank": 1, "world_size": 4, "store": "a:1", "own_store": false, "agent_store": true, '
    '"timeout": 600, "device": "", "given_rank": 2, "given_world_size": 4, "given_store": "b:2"}'
)


def test_a_claim_is_kept_as_the_former_one_when_its_group_is_destroyed() -> None:
    buffer = fresh()
    page = HeartbeatPage(buffer)
    page.announce(1)
    page.claim(CLAIM, 12.5)
    beat = read(buffer)
    assert beat is not None
    claim = beat.claim
    assert claim is not None
    assert (claim.at, claim.rank, claim.world_size, claim.store) == (12.5, 1, 4, "a:1")
    assert (claim.timeout, claim.given_rank, claim.given_store) == (600.0, 2, "b:2")
    assert beat.former_claim is None
    page.claim(CLAIM[:-1] + ', "destroyed": true}', 12.5)
    beat = read(buffer)
    assert beat is not None
    assert (beat.claim, beat.former_claim) == (None, claim)


@pytest.mark.parametrize("text", [CLAIM[:40], "[]", "null", '{"rank": "one"}', CLAIM + "x" * 9999])
def test_a_claim_that_is_not_whole_is_none(text: str) -> None:
    buffer = fresh()
    page = HeartbeatPage(buffer)
    page.announce(1)
    page.claim(text, 12.5)
    beat = read(buffer)
    assert beat is not None
    assert beat.claim is None


@given(st.text(), st.floats(min_value=0, max_value=1e9))
def test_any_name_comes_back_whole_or_cut(name: str, until: float) -> None:
    buffer = fresh()
    page = HeartbeatPage(buffer)
    page.limit(name, until)
    got, when = read_limit(buffer)
    whole = name.encode("utf-8", "replace").decode()
    assert whole.startswith(got)
    assert got == whole or len(whole.encode()) > 400
    assert when == pytest.approx(until, abs=1e-6)


@given(st.integers(24, heartbeat_page.SIZE - 64), st.binary(min_size=1, max_size=64))
def test_rubbish_on_an_announced_page_never_raises(at: int, rubbish: bytes) -> None:
    buffer = fresh()
    page = HeartbeatPage(buffer)
    page.announce(1)
    page.phase("a phase")
    buffer[at : at + len(rubbish)] = rubbish
    beat = read(buffer)
    assert beat is not None
    assert beat.phase in ("a phase", "") or at < 256 + 16


def test_a_half_written_name_is_no_name() -> None:
    """As a rank stopped in the middle of its write leaves it."""
    buffer = fresh()
    page = HeartbeatPage(buffer)
    page.announce(1)
    page.limit("forward", 60.0)
    at = buffer.find(b"forward")
    buffer[at : at + 3] = b"bac"
    beat = read(buffer)
    assert beat is not None
    assert (beat.limit_name, beat.limit_until) == ("", 0.0)


def test_name_and_time_read_together_belong_together() -> None:
    buffer = fresh()
    page = HeartbeatPage(buffer)
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number = number % 1000 + 1
            page.limit(f"limit {number} {'x' * (number % 97)}", float(number))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        # Until the writer had its turns: on a busy machine the first may take its time.
        deadline, seen = time.monotonic() + 60, set[tuple[str, float]]()
        while len(seen) < 20 and time.monotonic() < deadline:
            seen |= {read_limit(buffer) for _ in range(2000)} - {("", 0.0)}
    finally:
        stop.set()
        writer.join()
    assert len(seen) >= 20
    assert all(name.split()[1] == str(round(until)) for name, until in seen)


def test_another_process_writes_what_we_read(shared: tuple[int, mmap.mmap]) -> None:
    fd, buffer = shared
    script = (
        "import sys; from holdfast.rank.heartbeat_page import *; "
        "page = HeartbeatPage(attach(sys.argv[1])); page.announce(1); page.phase('über')"
    )
    subprocess.run([sys.executable, "-c", script, f"/proc/{os.getpid()}/fd/{fd}"], check=True)
    beat = read(buffer)
    assert beat is not None
    assert beat.phase == "über"


def test_nobody_can_shrink_the_page_under_its_reader(shared: tuple[int, mmap.mmap]) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(shared[0], 0)


def test_the_writing_side_needs_nothing_but_the_standard_library() -> None:
    script = (
        "import sys; from holdfast.rank.heartbeat_page import *; fd, buffer = create(); "
        "HeartbeatPage(buffer).announce(1); sys.exit('msgspec' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
