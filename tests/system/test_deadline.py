"""Questions run in real children: they answer, raise, hang and die for real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from holdfast.analysis.machine import Unread
from holdfast.system import deadline
from tests.system.sockets import needs_root, run_python


def block() -> bytes:
    signal.pause()
    return b"never"


def die() -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b"never"


def complain() -> bytes:
    raise PermissionError("the file is not yours")


def look_for_a_file() -> bytes:
    with open("/no/such/file", "rb") as file:
        return file.read()


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
    assert answers == {"stuck": Unread(why="no answer within 2 s", timed_out=True), "fine": b"here"}
    # Bounded by the deadline, not by the question; the factor leaves room for a busy machine.
    assert time.monotonic() - began < 10 * 2


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (complain, "the file is not yours"),
        (look_for_a_file, "No such file or directory: /no/such/file"),
        (lambda: os.environb[b"NONE"], "KeyError: b'NONE'"),
        (die, "its reader died (SIGKILL) without an answer"),
        (leave_quietly, "its reader died (exit code 3) without an answer"),
    ],
)
def test_one_that_fails_says_why(question: deadline.Question, why: str) -> None:
    assert deadline.ask({"q": question}, seconds=10) == {"q": Unread(why=why)}


def test_no_child_and_no_descriptor_is_left_behind() -> None:
    before, children = set(os.listdir("/proc/self/fd")), psutil.Process().children()
    deadline.ask({"stuck": block, "fine": lambda: b"here", "dead": die}, seconds=0.2)
    assert set(os.listdir("/proc/self/fd")) == before
    for left in set(psutil.Process().children()) - set(children):
        # A busy kernel may take its time over it, but it was told to end it.
        assert os.waitpid(left.pid, 0) == (left.pid, signal.SIGKILL)


CTRL_C_WHILE_FORKING = """
import os, signal
from holdfast.system import deadline
os.register_at_fork(before=lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    deadline.ask({"q": lambda: b"x"}, seconds=5)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_ctrl_c_is_not_lost_while_children_are_started() -> None:
    """Python prints and forgets what is raised inside its hooks around fork()."""
    assert run_python(CTRL_C_WHILE_FORKING) == "interrupted\n"


ASK_FIVE = """
answers = deadline.ask({name: lambda: b"x" for name in "abcde"}, seconds=5)
print(*sorted({getattr(answer, "why", "fine") for answer in answers.values()}), sep="|")
"""
FEW_FILES = """
import os, resource
from holdfast.system import deadline
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 3,) * 2)
"""
NO_PROCESSES = """
import os, resource
from holdfast.system import deadline
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
os.setuid(65534)
"""


def test_a_limit_that_strikes_us_too_is_reported() -> None:
    said = run_python(FEW_FILES + ASK_FIVE)
    assert said == "could not start its reader: Too many open files|fine\n"
    needs_root()  # the kernel does not count the processes of root
    said = run_python(NO_PROCESSES + ASK_FIVE)
    assert said == "could not start its reader: Resource temporarily unavailable\n"


def test_a_question_may_have_a_longer_deadline_of_its_own() -> None:
    def slow() -> bytes:
        time.sleep(0.5)
        return b"late"

    answers = deadline.ask({"driver": slow, "stuck": block}, seconds=0.2, longer={"driver": 20})
    assert answers["driver"] == b"late"
    assert answers["stuck"] == Unread(why="no answer within 0.2 s", timed_out=True)


def test_a_question_within_a_question_ends_before_it() -> None:
    def nested() -> bytes:
        left = deadline.time_left(otherwise=600)
        answer = deadline.ask({"inner": block}, seconds=left)["inner"]
        assert isinstance(answer, Unread)
        return b"the inner one did not answer" if answer.timed_out and left < 2 else b"?"

    assert deadline.time_left(otherwise=600) == 600
    assert deadline.ask({"outer": nested}, seconds=2)["outer"] == b"the inner one did not answer"


def test_a_question_that_follows_another_is_asked_when_that_is_answered(tmp_path: Path) -> None:
    mark = tmp_path / "mark"

    def earlier() -> bytes:
        time.sleep(0.3)
        mark.touch()
        return b"first"

    def later() -> bytes:
        return b"after" if mark.exists() else b"before"

    both = {"later": later, "earlier": earlier}
    assert deadline.ask(both, seconds=20, after={"later": "earlier"})["later"] == b"after"
    mark.unlink()
    alone = deadline.ask({"later": later}, seconds=20, after={"later": "earlier"})
    assert alone == {"later": b"before"}  # nothing to wait for
    assert deadline.ask({"earlier": earlier}, seconds=20, after={"later": "earlier"}) == {
        "earlier": b"first"
    }
    mark.unlink()
    stuck = {"later": later, "earlier": block}
    answers = deadline.ask(stuck, seconds=0.5, longer={"later": 20}, after={"later": "earlier"})
    assert answers["later"] == b"before"
    assert isinstance(answers["earlier"], Unread)


def test_a_child_that_is_left_behind_does_not_hold_our_output() -> None:
    """`x=$(holdfast check)` ends when all who could write there are gone."""
    script = """
        import os, time
        from holdfast.system import deadline

        def left_behind():
            if os.fork() == 0:
                time.sleep(40)  # as one that not even SIGKILL ends
                os._exit(0)
            time.sleep(40)

        print(deadline.ask({"stuck": left_behind}, seconds=0.3)["stuck"].why)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert done.stdout == "no answer within 0.3 s\n"
