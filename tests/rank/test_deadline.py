"""`holdfast.deadline`: on the page of a rank, and kept without a launcher."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import ConfigError
from tests.rank.ranks import PATIENCE, bare, started, wait_for


def test_a_deadline_is_on_the_page_and_the_first_to_pass_counts(tmp_path: Path) -> None:
    script = """
import holdfast, time
with holdfast.deadline('outer', 100), holdfast.deadline('inner', 500):
    print('in', flush=True)
    time.sleep(0.5)
print('out', flush=True)
"""
    before = time.monotonic()
    with started(tmp_path, script) as rank:
        wait_for(lambda: rank.printed("in"), "it is inside")
        beat = rank.beat
        rank.finish()
        assert (rank.beat.limit_name, rank.beat.limit_until) == ("", 0.0)
    assert beat.limit_name == "outer"
    assert before + 99 < beat.limit_until < time.monotonic() + 100
    assert rank.err.read_text() == ""


LATE = """
import ctypes, holdfast
def forward():
    ctypes.PyDLL(None).sleep(600)
with holdfast.deadline('forward', 0.3):
    forward()
"""


def test_without_a_launcher_a_deadline_is_enforced_with_the_gil_held() -> None:
    began = time.monotonic()
    done = bare(LATE, RANK="3")
    assert done.returncode == -signal.SIGABRT
    assert time.monotonic() - began < 30
    assert re.search(r"holdfast> deadline 'forward' passed and rank 3 \(pid \d+\)", done.stderr)
    assert "forward" in done.stderr.partition("still in that section")[2]
    assert done.stdout == ""


def test_without_py_spy_the_signal_itself_shows_the_stacks(tmp_path: Path) -> None:
    """faulthandler answers SIGABRT: hide the tool by an interpreter that has none beside it."""
    python = tmp_path / "python"
    python.symlink_to(os.path.realpath(sys.executable))
    source = str(Path(holdfast.__file__).parent.parent)
    done = subprocess.run(
        [str(python), "-c", f"import sys; sys.path.insert(0, {source!r})\n{LATE}"],
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == -signal.SIGABRT
    assert "Fatal Python error: Aborted" in done.stderr
    assert "in forward" in done.stderr


def test_a_stopped_process_is_ended_too() -> None:
    script = (
        "import holdfast, os, signal\n"
        "with holdfast.deadline('x', 0.3): os.kill(os.getpid(), signal.SIGSTOP)"
    )
    began = time.monotonic()
    assert bare(script).returncode == -signal.SIGABRT
    assert time.monotonic() - began < 25  # and not only when the grace is over


def test_a_section_within_its_deadline_ends_nothing_and_leaves_no_process() -> None:
    script = """
import holdfast, os, psutil, threading, time
def section():
    with holdfast.deadline('quick', 0.4):
        pass
thread = threading.Thread(target=section)  # whose end must not be the watcher's
thread.start()
thread.join()
for _ in range(3):
    section()
with holdfast.deadline('parent', 0.4):
    if os.fork() == 0:
        time.sleep(0.8)  # the limit is its parent's
        os._exit(0)
code = os.wait()[1]
children = psutil.Process().children()
print(code, len(children), psutil.pid_exists(children[0].pid))
"""
    done = bare(script)
    assert (done.stdout, done.stderr, done.returncode) == ("0 1 True\n", "", 0)


def test_off_means_no_deadline() -> None:
    script = (
        "import holdfast, time\nwith holdfast.deadline('x', 0.1): time.sleep(1)\nprint('through')"
    )
    assert bare(script, HOLDFAST="off").stdout == "through\n"


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_duration_must_be_greater_than_0(seconds: float) -> None:
    refused = pytest.raises(ConfigError, match=f"seconds must be > 0, got {seconds}")
    with refused, holdfast.deadline("x", seconds):
        pass
    with pytest.raises(ConfigError, match=f"timeout must be > 0, got {seconds}"):
        holdfast.wait_for(None, seconds)
