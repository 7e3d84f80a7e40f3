"""What is kept of a rank between two looks: signs of life, clocks, last words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.scene.scene import Activity, Death
from holdfast.rank import heartbeat_page
from holdfast.run.watch.rank_state import moved, read_words
from holdfast.system import activity
from tests.cli.holdfast_command import wait_until
from tests.run.scenes import RESET
from tests.run.watched import SLEEP, process, watched

STILL = Activity(state="S", cpu=1.0, io=10, socket=20, faults=0, wait_channel="")
WORDS = {"kind": "ValueError", "text": "no", "where": "a.py:1", "at": 5.0}
BUSY = "print('here', flush=True)\nwhile True: pass\n"
WRITES = (
    "import os, time\nprint('here', flush=True)\n"
    "while True: os.write(os.open(os.devnull, os.O_WRONLY), b'x'); time.sleep(0.2)\n"
)
TERMINATES = "import ctypes\nctypes.CDLL('libstdc++.so.6')._ZSt9terminatev()\n"


@pytest.mark.parametrize(
    ("change", "alive"),
    [
        ({}, False),
        ({"cpu": 1.01}, False),  # timers and epoll loops burn as much
        ({"cpu": 1.5}, True),
        ({"io": 11}, True),
        ({"socket": 21}, True),
        ({"faults": 1}, True),
        ({"state": "R"}, False),  # a letter caught by chance is no work done
    ],
)
def test_any_counter_that_moved_is_a_sign_of_life(change: dict[str, Any], alive: bool) -> None:
    assert moved(STILL, msgspec.structs.replace(STILL, **change), 1.0) is alive


def test_processor_time_counts_by_the_second() -> None:
    later = msgspec.structs.replace(STILL, cpu=1.5)
    assert moved(STILL, later, 1.0)
    assert not moved(STILL, later, 60.0)


@pytest.mark.parametrize("text", [BUSY, WRITES])
def test_a_real_process_at_work_shows_it(text: str) -> None:
    with process(text) as child:
        before = activity.read(child.pid)
        assert before
        wait_until(lambda: (now := activity.read(child.pid)) is not None and moved(before, now, 1))


def test_a_real_process_asleep_shows_nothing(tmp_path: Path) -> None:
    with process(SLEEP) as child, watched(tmp_path, child.pid) as rank:
        wait_until(lambda: (now := activity.read(child.pid)) is not None and now.state == "S")
        for look in range(20):
            rank.compare(100.0 + look, activity.read(child.pid))
        assert rank.alive_at == 100.0


def test_the_state_letter_has_a_clock_of_its_own(tmp_path: Path) -> None:
    with process(SLEEP) as child, watched(tmp_path, child.pid) as rank:
        rank.compare(100.0, msgspec.structs.replace(STILL, state="S"))
        rank.compare(101.0, msgspec.structs.replace(STILL, state="T"))
        rank.compare(102.0, msgspec.structs.replace(STILL, state="T"))
        assert (rank.alive_at, rank.state_since) == (100.0, 101.0)
        rank.compare(103.0, None)  # it could not be read: nothing is known, nothing changes
        assert (rank.alive_at, rank.state_since) == (100.0, 101.0)


def test_a_state_seen_when_evidence_is_taken_has_begun_then(tmp_path: Path) -> None:
    """Else a process stopped for a moment would be one stopped since it began to sleep."""
    with process(SLEEP) as child, watched(tmp_path, child.pid) as rank:
        rank.compare(100.0, STILL)
        rank.look_again(150.0, msgspec.structs.replace(STILL, state="T", cpu=9.0))
        rank.compare(151.0, msgspec.structs.replace(STILL, state="T", cpu=9.0))
        assert (rank.alive_at, rank.state_since) == (100.0, 150.0), "we moved its counters"


def test_after_a_rest_all_clocks_start_again(tmp_path: Path) -> None:
    with process(SLEEP) as child, watched(tmp_path, child.pid) as rank:
        rank.compare(100.0, STILL)
        rank.reset_timers(130.0)
        assert (rank.alive_at, rank.state_since) == (130.0, 130.0)
        rank.compare(131.0, STILL)
        assert rank.alive_at == 130.0


def test_a_step_is_a_sign_of_life(tmp_path: Path) -> None:
    with process(SLEEP) as child, watched(tmp_path, child.pid) as rank:
        rank.read_page(100.0)
        assert rank.view().beat is None
        page = heartbeat_page.HeartbeatPage(rank.page)
        page.announce(child.pid)
        page.step(3, at=int(99e9), usual=int(5e7))
        rank.read_page(101.0)
        assert (rank.steps, rank.alive_at) == (3, 101.0)
        rank.read_page(102.0)
        assert rank.alive_at == 101.0
        page._words.release()


def test_last_words_are_read_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "words"
    assert read_words(str(path)) is None
    path.write_text(json.dumps(WORDS)[:-5])
    assert read_words(str(path)) is None
    path.write_text(json.dumps(WORDS))
    words = read_words(str(path))
    assert words
    assert (words.kind, words.text, words.where, words.at) == ("ValueError", "no", "a.py:1", 5.0)


@given(st.binary(max_size=200))
def test_reading_words_never_raises(tmp_path_factory: Any, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any-words"
    path.write_bytes(content)
    assert read_words(str(path)) is None


def test_a_rank_that_took_a_step_after_its_words_has_not_ended(tmp_path: Path) -> None:
    """A script may call sys.excepthook itself, to log what it caught."""
    with process(SLEEP) as child, watched(tmp_path, child.pid) as rank:
        Path(rank.words_file).write_text(json.dumps(WORDS))
        rank.read_at = 0.0
        page = heartbeat_page.HeartbeatPage(rank.page)
        page.announce(child.pid)
        page.step(1, at=int(4e9), usual=0)
        rank.read_page(6.0)
        assert rank.view().words is not None
        page.step(2, at=int(6e9), usual=0)
        rank.read_page(6.5)
        assert rank.view().words is None
        page._words.release()


def test_what_cpp_said_when_it_aborted_comes_from_its_stderr(tmp_path: Path) -> None:
    with (tmp_path / "0.err").open("wb") as err, process(TERMINATES, stderr=err.fileno()) as child:
        code = child.wait(60)
    assert code == -signal.SIGABRT
    with watched(tmp_path, child.pid) as rank:
        assert rank.view().words is None  # it is not known to be dead
        rank.death = Death(code=code, at=7.0)
        words = rank.view().words
        assert words
        assert (words.kind, words.at) == ("terminate", 7.0)
        rank.death = Death(code=-signal.SIGSEGV, at=7.0)
        assert rank.view().words is None
        rank.death = Death(code=code, at=7.0)
        (tmp_path / "0.err").unlink()
        assert rank.view().words is None


def test_of_a_long_stderr_only_the_end_is_read(tmp_path: Path) -> None:
    said = "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  x\n"
    (tmp_path / "0.err").write_text(said + "noise\n" * 50_000)
    with watched(tmp_path, os.getpid()) as rank:
        rank.death = Death(code=-signal.SIGABRT, at=time.monotonic())
        assert rank.view().words is None
        (tmp_path / "0.err").write_text("noise\n" * 50_000 + said)
        words = rank.view().words
        assert words
        assert (words.kind, words.text) == ("gloo::EnforceNotMet", "x")


def test_the_dead_have_no_activity(tmp_path: Path) -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    with watched(tmp_path, child.pid) as rank:
        rank.compare(1.0, STILL)
        assert rank.view().activity == STILL
        rank.death = Death(code=0, at=2.0)
        assert rank.view().activity is None


def test_a_rank_whose_clock_is_another_one_has_stepped_when_we_saw_it(tmp_path: Path) -> None:
    """In a time namespace its last step would seem to be days old, and so would every wait."""
    long_ago = 1  # what is an hour ago is before the boot of a fresh machine
    with process(SLEEP) as child, watched(tmp_path, child.pid) as rank:
        page = heartbeat_page.HeartbeatPage(rank.page)
        page.announce(child.pid)
        page.step(1, at=long_ago, usual=1)
        rank.read_page(rank.started_at + 5.0)
        assert rank.beat is not None
        assert rank.beat.step_at == rank.started_at
        page.step(2, at=long_ago, usual=1)
        rank.read_page(rank.started_at + 9.0)
        rank.read_page(rank.started_at + 20.0)
        assert rank.beat.step_at == rank.started_at + 5.0
        page._words.release()


def test_a_rank_that_spawned_others_says_what_the_first_of_them_did(tmp_path: Path) -> None:
    """mp.spawn raises for whichever of its processes it sees exit first: here one that lost its
    peer."""
    lost = {"kind": "RuntimeError", "text": RESET, "where": "train.py:30 in run", "at": 5.0}
    cause = {"kind": "ValueError", "text": "bad", "where": "train.py:9 in run", "at": 4.0}
    handed = {"kind": "ProcessRaisedException", "text": RESET, "where": "train.py:40", "at": 6.0}
    with (
        watched(tmp_path, os.getpid(), 0) as parent,
        watched(tmp_path, os.getpid(), 1) as first,
        watched(tmp_path, os.getpid(), 2) as second,
    ):
        parent.members.update({1: first, 2: second})
        for rank, words in ((parent, handed), (first, lost), (second, cause)):
            Path(rank.words_file).write_text(json.dumps(words))
        said = parent.last_words()
        assert said is not None
        assert (said.kind, said.at) == ("ValueError", 4.0)
        assert said.where == "train.py:9 in run, in spawned rank 2"
        Path(parent.words_file).write_text(json.dumps({**handed, "kind": "OSError"}))
        own = parent.last_words()
        assert own is not None
        assert own.kind == "OSError", "its own failure"


def test_a_page_between_two_processes_of_a_wrapper_speaks_of_no_end(tmp_path: Path) -> None:
    """`python -c 'import torch'` before the script itself: that was not the rank's end."""
    with (
        process(SLEEP) as helper,
        watched(tmp_path, os.getpid()) as rank,
    ):
        page = heartbeat_page.HeartbeatPage(rank.page)
        page.announce(helper.pid)
        page.leaving()
        rank.read_page(1.0)
        assert rank.beat is not None
        assert rank.beat.leaving_at > 0
        assert (rank.pid, rank.leader) == (helper.pid, os.getpid())
        helper.kill()
        helper.wait()
        rank.read_page(2.0)
        assert rank.beat.leaving_at == 0
        del page  # the mapping cannot be closed while it is in use
