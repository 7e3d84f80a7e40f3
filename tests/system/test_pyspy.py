"""Stacks of real processes: stopped, busy, holding the GIL in C, with children."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.analysis.collectives import stacks
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Frame, Stack
from holdfast.system import activity, pyspy
from tests.frozen_disk import disk
from tests.places import TARGETS
from tests.system.sockets import (
    BECOME_NOBODY,
    needs_root,
    process_that_prints,
    run_python,
    wait_for,
)

LOADER = TARGETS / "loader_with_stuck_worker.py"

BUSY = "def work():\n    while True:\n        pass\nprint(flush=True)\nwork()"
WAITING = "import signal\ndef wait():\n    signal.pause()\nprint(flush=True)\nwait()"
GIL_IN_C = (
    "import ctypes\ndef hold():\n    ctypes.PyDLL(None).sleep(600)\nprint(flush=True)\nhold()"
)


def innermost(pid: int) -> str:
    stack = pyspy.dump(pid, seconds=30)
    return stack.frames[0].function if isinstance(stack, Stack) and stack.frames else ""


@pytest.mark.parametrize(
    ("code", "function"), [(BUSY, "work"), (WAITING, "wait"), (GIL_IN_C, "hold")]
)
def test_running_or_stopped_the_stack_is_seen(code: str, function: str) -> None:
    with process_that_prints(code) as (pid, _):
        wait_for(lambda: innermost(pid) == function, seconds=60)
        os.kill(pid, signal.SIGSTOP)
        stack = pyspy.dump(pid, seconds=30)
        assert isinstance(stack, Stack), stack
        assert [frame.function for frame in stack.frames] == [function, "<module>"]
        assert stack.holds_gil == (code is not WAITING)


def test_it_leaves_the_process_running() -> None:
    with process_that_prints(BUSY) as (pid, _):
        for _ in range(10):
            wait_for(lambda: innermost(pid) == "work", seconds=60)
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "R"


def test_a_loader_and_its_worker(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, str(LOADER), str(tmp_path)]) as process:
        try:
            wait_for((tmp_path / "worker.pid").exists, seconds=90)
            worker = int((tmp_path / "worker.pid").read_text())
            family = pyspy.dump_family(process.pid, seconds=60)
            main, other = family[process.pid], family[worker]
            assert isinstance(main, Stack), main
            assert isinstance(other, Stack), other
            assert stacks.activity_of(main) == "data loading"
            assert stacks.where(main).startswith("in __next__() at loader_with_stuck_worker.py:")
            assert stacks.where(other).startswith("in __getitem__() at loader_with_stuck_wor")
        finally:
            for child in activity.descendants(process.pid):
                os.kill(child, signal.SIGKILL)
            process.kill()


def test_a_process_that_is_gone_or_no_python() -> None:
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:
            said = pyspy.dump(sleeper.pid, seconds=30)
            assert isinstance(said, Unread)
            assert "does not run Python" in said.why
        finally:
            sleeper.kill()
    said = pyspy.dump(sleeper.pid, seconds=30)
    assert said == Unread(why=f"process {sleeper.pid} is gone")


@contextlib.contextmanager
def fake_pyspy(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another py-spy, found first: it stands for one that a machine's state breaks."""
    (folder / "py-spy").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "py-spy").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    yield


def test_one_that_hangs_is_ended_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fake_pyspy(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 600", monkeypatch):
        started = time.monotonic()
        said = pyspy.dump(os.getpid(), seconds=0.5)
        assert time.monotonic() - started < 10
    assert said == Unread(why="py-spy did not finish within 0.5 s")
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.lab
def test_a_reader_that_cannot_be_killed_is_not_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a rank whose memory is on a dead file server, looked at for days."""
    started, hangs = tmp_path / "started", tmp_path / "disk" / "file"
    script = f"echo x >> {started}; echo x > {hangs}"
    with disk(tmp_path) as frozen, fake_pyspy(tmp_path, script, monkeypatch):
        frozen.freeze()
        first = pyspy.dump(os.getpid(), seconds=1)
        assert isinstance(first, Unread)
        assert [pyspy.dump(os.getpid(), seconds=1) for _ in range(2)] == [pyspy.HANGS] * 2
        assert started.read_text() == "x\n"
        frozen.thaw()
        wait_for(lambda: pyspy.dump(os.getpid(), seconds=1) != pyspy.HANGS)


def test_one_that_is_missing_is_named_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    said = pyspy.dump(os.getpid())
    assert isinstance(said, Unread)
    assert "pip install py-spy" in said.why


def test_a_torn_reading_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = tmp_path / "count"
    script = (
        f"echo . >> {count}; test $(wc -l < {count}) -ge 3 && "
        """echo '[{"frames":[],"os_thread_id":%s}]' && exit 0\n"""
        "echo 'Error: Failed to copy PyCodeObject' >&2; exit 1"
    ) % os.getpid()
    with fake_pyspy(tmp_path, script, monkeypatch):
        said = pyspy.dump(os.getpid(), seconds=30)
    assert said == Stack(frames=(), active=False, holds_gil=False)


AS_NOBODY = (
    "import sys\nfrom holdfast.system import pyspy\n"
    + BECOME_NOBODY
    + "sys.executable = sys.argv[1] + '/python'\n"
    + "print(pyspy.dump(int(sys.argv[2]), seconds=30).why)"
)


@pytest.mark.lab
def test_another_users_process_needs_permission() -> None:
    needs_root()
    program = pyspy._program()
    assert program is not None
    with tempfile.TemporaryDirectory() as folder, process_that_prints(WAITING) as (pid, _):
        os.chmod(folder, 0o755)  # the environment may lie where only root can read
        shutil.copy(program, folder)
        said = run_python(AS_NOBODY, folder, str(pid))
    assert f"not permitted to read the memory of process {pid}" in said
    assert "--cap-add=SYS_PTRACE" in said


# --- its JSON ------------------------------------------------------------------------------------


def test_the_main_thread_is_taken_without_our_own_frames() -> None:
    ours = os.path.join(os.path.dirname(holdfast.__file__), "rank", "steps.py")
    document = (
        b'[{"os_thread_id":8,"thread_name":"holdfast-beat","frames":[]},'
        b'{"os_thread_id":7,"active":true,"owns_gil":true,"frames":['
        b'{"name":"on_step","filename":"%s","line":5},'
        b'{"name":"train","filename":"/home/me/train.py","line":9,"locals":null}]}]'
    ) % ours.encode()
    assert pyspy.parse(document, 7) == Stack(
        frames=(Frame(function="train", file="/home/me/train.py", line=9),),
        active=True,
        holds_gil=True,
    )


def test_in_another_pid_namespace_the_name_must_do() -> None:
    document = b'[{"os_thread_id":1,"thread_name":"MainThread","frames":[]}]'
    assert isinstance(pyspy.parse(document, 7), Stack)


@given(st.binary() | st.sampled_from([b"[]", b"{}", b'[{"frames":[]}]', b"[" * 10_000]))
def test_any_answer_is_read_or_unread(document: bytes) -> None:
    assert isinstance(pyspy.parse(document, 7), (Stack, Unread))
