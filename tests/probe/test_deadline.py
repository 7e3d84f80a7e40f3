"""Questions run in real children: they answer, raise, hang and die for real."""

from __future__ import annotations

import os
import signal
import time

import pytest

from holdfast.facts import Unread
from holdfast.probe import deadline


def block() -> bytes:
    signal.pause()
    return b"never"


def die() -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b"never"


def complain() -> bytes:
    raise PermissionError("the file is not yours")


def leave_quietly() -> bytes:
    os._exit(3)


def test_answers_come_back_whole() -> None:
    big = bytes(range(256)) * 10_000
    answers = deadline.ask(
        {"small": lambda: b"x", "empty": lambda: b"", "big": lambda: big}, seconds=10
    )
    assert answers == {"small": b"x", "empty": b"", "big": big}


def test_one_that_hangs_costs_its_deadline_and_the_rest_is_there() -> None:
    began = time.monotonic()
    answers = deadline.ask({"stuck": block, "fine": lambda: b"here"}, seconds=2)
    assert answers == {"stuck": Unread(why="no answer within 2 s"), "fine": b"here"}
    # Bounded by the deadline, not by the question; the factor leaves room for a busy machine.
    assert time.monotonic() - began < 10 * 2


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (complain, "PermissionError: the file is not yours"),
        (die, "its reader died (SIGKILL) without an answer"),
        (leave_quietly, "its reader died (exit code 3) without an answer"),
    ],
)
def test_one_that_fails_says_why(question: deadline.Question, why: str) -> None:
    assert deadline.ask({"q": question}, seconds=10) == {"q": Unread(why=why)}


def test_no_child_and_no_descriptor_is_left_behind() -> None:
    before = set(os.listdir("/proc/self/fd"))
    deadline.ask({"stuck": block, "fine": lambda: b"here", "dead": die}, seconds=0.2)
    assert set(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
