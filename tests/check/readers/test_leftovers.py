"""Shared memory left behind, and processes that cannot be interrupted."""

from __future__ import annotations

import os
import platform
import signal
import time
from pathlib import Path

import pytest

from holdfast.analysis.machine import Leftovers
from holdfast.check.readers.leftovers import _may_hold, read_leftovers
from tests.faults.machines import a_plan
from tests.system.sockets import process_that_prints

MAP = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    memory = mmap.mmap(file.fileno(), 0)
print("ready", flush=True)
sys.stdin.read()
"""
# clone(CLONE_VFORK) copies the process like fork, but the parent sleeps uninterruptibly until
# the child ends or calls exec.
SLEEP_DEEPLY = """
import ctypes, os, signal, sys
CLONE_VFORK = 0x4000
if ctypes.CDLL(None).syscall(int(sys.argv[1]), CLONE_VFORK | signal.SIGCHLD, 0, 0, 0, 0) == 0:
    print(os.getpid(), flush=True)
    signal.pause()
"""
CLONE = {"x86_64": "56", "aarch64": "220"}


def look(shm: Path) -> Leftovers:
    return read_leftovers(a_plan(), shm=str(shm))


def test_a_segment_tells_who_maps_it(tmp_path: Path) -> None:
    for name in ("nccl-a1b2", "torch_77_1", "mine.txt", "sem.other"):
        (tmp_path / name).write_bytes(b"x" * 4096)
        (tmp_path / name).chmod(0o600)
    os.utime(tmp_path / "torch_77_1", (time.time() - 7200,) * 2)
    with process_that_prints(MAP, str(tmp_path / "nccl-a1b2")) as (pid, _):
        found = {os.path.basename(s.path): s for s in look(tmp_path).segments}
    assert set(found) == {"nccl-a1b2", "torch_77_1"}
    assert (found["nccl-a1b2"].mapped_by, found["torch_77_1"].mapped_by) == ((pid,), ())
    assert found["nccl-a1b2"].size == 4096
    assert 7200 <= found["torch_77_1"].age < 7300


@pytest.mark.parametrize(
    ("mode", "hidden", "doubt"),
    [
        (0o600, set(), False),
        (0o600, {4711}, False),
        (0o600, {4711, os.geteuid()}, True),
        (0o666, {4711}, True),
    ],
)
def test_hidden_processes_leave_a_doubt_when_their_user_may_open_the_file(
    tmp_path: Path, mode: int, hidden: set[int], doubt: bool
) -> None:
    path = tmp_path / "nccl-x"
    path.touch()
    path.chmod(mode)
    assert _may_hold(path.stat(), frozenset(hidden)) == doubt


def test_without_segments_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert look(tmp_path).segments == ()
    assert look(tmp_path / "none").segments == (), "some containers have no /dev/shm"


def test_a_process_in_uninterruptible_sleep_is_named(tmp_path: Path) -> None:
    number = CLONE.get(platform.machine())
    if number is None:
        pytest.skip("needs the number of clone() on this machine")
    with process_that_prints(SLEEP_DEEPLY, number) as (pid, line):
        try:
            stuck = {s.process.pid: s for s in look(tmp_path).stuck}
        finally:
            os.kill(int(line), signal.SIGKILL)
    assert pid in stuck
    assert stuck[pid].wait_channel, "the kernel tells where it sleeps"
    assert int(line) not in stuck, "its child only waits for a signal"
