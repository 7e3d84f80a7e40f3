"""How a script ends its process, seen from inside: real processes, no torch."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from holdfast.analysis.scene.scene import ExitCall
from tests.rank.ranks import Rank, ran, started, wait_for

FUNCTION = "import os, sys\ndef main():\n    {}\n"


def seen(rank: Rank) -> ExitCall:
    assert rank.last is not None
    assert rank.last.exit_call is not None
    return rank.last.exit_call


@pytest.mark.parametrize(
    ("leave", "by", "code", "text"),
    [
        ("sys.exit(3)", "sys.exit", 3, ""),
        ("sys.exit()", "sys.exit", 0, ""),
        ("sys.exit(-1)", "sys.exit", 255, ""),
        ("sys.exit('no data in /data')", "sys.exit", 1, "no data in /data"),
        ("os._exit(4)", "os._exit", 4, ""),
        ("os._exit(status=0)", "os._exit", 0, ""),
        ("exit(5)", "exit", 5, ""),
        ("__import__('argparse').ArgumentParser().error('x')", "sys.exit", 2, ""),
    ],
)
def test_where_and_how_a_script_ended_itself(
    tmp_path: Path, leave: str, by: str, code: int, text: str
) -> None:
    before = time.monotonic()
    rank = ran(tmp_path, FUNCTION.format(leave) + "main()")
    call = seen(rank)
    assert rank.process.returncode == code
    assert (call.by, call.code, call.text) == (by, code, text)
    assert call.where == "train.py:3 in main"
    assert before < call.at < time.monotonic()
    assert rank.last is not None
    assert rank.last.leaving_at >= call.at
    assert rank.last_words() is None
    assert "holdfast" not in rank.err.read_text()


HYDRA = """
import sys, traceback
def train():
    raise ValueError('bad batch')
def run_and_report(work):
    try:
        return work()
    except Exception:
        traceback.print_exc()
        sys.exit(1)
run_and_report(train)
"""


def test_an_exception_that_is_handled_by_an_exit_is_the_last_word(tmp_path: Path) -> None:
    rank = ran(tmp_path, HYDRA)
    words = rank.last_words()
    assert words is not None
    assert (words["kind"], words["text"]) == ("ValueError", "bad batch")
    assert words["where"] == "train.py:4 in train"
    assert words["exit_code"] == 1
    assert words["at"] == pytest.approx(seen(rank).at)
    assert rank.process.returncode == 1


CAUGHT = HYDRA.replace("run_and_report(train)\n", "try: run_and_report(train)\n") + (
    "except SystemExit: pass\n"
)


@pytest.mark.parametrize(
    "script",
    [
        HYDRA.replace("sys.exit(1)", "sys.exit(0)"),
        CAUGHT,
        "import sys\ntry: sys.exit(1)\nexcept SystemExit: pass",
        "import sys, threading\nthreading.Thread(target=lambda: sys.exit(3)).start()",
    ],
)
def test_nothing_is_said_of_an_exit_that_was_no_failure(tmp_path: Path, script: str) -> None:
    rank = ran(tmp_path, script)
    assert rank.process.returncode == 0
    words = rank.last_words()
    assert words is None or words["exit_code"] == 1, "that code is not the one it ended with"


def test_the_end_begins_before_the_scripts_own_last_acts(tmp_path: Path) -> None:
    script = (
        "import atexit, time\natexit.register(lambda: (print('upload', flush=True), "
        "time.sleep(600)))\nraise SystemExit(3)"
    )
    with started(tmp_path, script) as rank:
        wait_for(lambda: rank.printed("upload"), "its atexit function runs")
        assert rank.beat.leaving_at > 0
        assert rank.beat.phase == ""
        assert rank.beat.exit_call is None


INVISIBLE = """
import inspect, os, pickle, sys
for leave in sys.exit, os._exit:
    print(pickle.loads(pickle.dumps(leave)) is leave)
print(sys.exit.__name__, os._exit.__name__, inspect.signature(sys.exit), sys.exit.__doc__[:4])
pid = os.fork()
if pid == 0:
    os._exit(7)
print(os.waitpid(pid, 0)[1] >> 8)
try:
    sys.exit(1, 2)
except TypeError as problem:
    print(problem)
"""


def test_the_script_notices_nothing(tmp_path: Path) -> None:
    rank = ran(tmp_path / "on", INVISIBLE)
    alone = ran(tmp_path / "off", INVISIBLE, {"HOLDFAST": "off"})
    assert rank.out.read_text() == alone.out.read_text()
    assert rank.err.read_text() == alone.err.read_text()
    assert rank.last is not None
    call = rank.last.exit_call
    assert call is None or call.code != 7, "a forked child does not speak for its rank"
