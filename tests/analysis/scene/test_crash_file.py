"""What Python's fault handler leaves of a crash: files of real crashes, and odd ones."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.analysis.collectives import stacks
from holdfast.analysis.scene import crash_file

CRASH = """
import ctypes, faulthandler, sys, threading, time
faulthandler.enable(open(sys.argv[1], "w"), all_threads=True)
threading.Thread(target=lambda: time.sleep(60), daemon=True).start()
def work():
    {how}
work()
"""
MAIN = 'Thread 0x01 (most recent call first):\n  File "/home/me/train.py", line 48 in main\n'
OURS = (
    "Thread 0x02 (most recent call first):\n"
    '  File "/venv/lib/python3.11/site-packages/holdfast/rank/heartbeat_thread.py", line 58 in f\n'
)


@pytest.mark.parametrize(
    ("how", "code"),
    [("ctypes.string_at(0)", signal.SIGSEGV), ("import os; os.abort()", signal.SIGABRT)],
)
def test_a_real_crash_shows_its_line(how: str, code: int, tmp_path: Path) -> None:
    script, left = tmp_path / "train.py", tmp_path / "crash"
    script.write_text(CRASH.format(how=how))
    ended = subprocess.run([sys.executable, script, left], check=False, timeout=60)
    assert ended.returncode == -code
    stack = crash_file.parse(left.read_text())
    assert stack is not None
    assert stacks.where(stack).endswith("at train.py:6")


@pytest.mark.parametrize(
    "text",
    [
        f"Fatal Python error: Aborted\n\n{OURS}\n{MAIN}",
        # the thread that crashed runs no Python
        f"Current thread 0x03 (most recent call first):\n  <no Python frame>\n\n{OURS}\n{MAIN}",
        f"{MAIN}\n\nExtension modules: numpy (total: 1)\n{OURS}",
    ],
)
def test_the_main_thread_stands_for_a_crash_outside_of_python(text: str) -> None:
    stack = crash_file.parse(text)
    assert stack is not None
    assert stacks.where(stack) == "in main() at train.py:48"


@pytest.mark.parametrize("text", ["", "Fatal Python error: Aborted\n", OURS, "\0\xff File"])
def test_nothing_to_tell(text: str) -> None:
    assert crash_file.parse(text) is None
