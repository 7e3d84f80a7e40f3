"""One job a folder; the kernel drops the lock with its owner."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.checkpoint.lock import NAME, FolderLock
from holdfast.checkpoint.resume import take_folder
from holdfast.errors import EnvironmentFailure

HOLDER = """
import sys, time
from holdfast.checkpoint.lock import FolderLock
FolderLock(sys.argv[1]).take()
print("held", flush=True)
time.sleep(60)
"""


def test_the_owner_is_named_and_its_death_frees_the_folder(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        try:
            assert owner.stdout
            assert owner.stdout.readline() == "held\n"
            lock = FolderLock(str(tmp_path))
            with pytest.raises(EnvironmentFailure, match=f"pid {owner.pid} on"):
                lock.take(patience=0.0)
            assert not lock.held
        finally:
            owner.kill()
    lock.take(patience=5.0)
    assert lock.held
    lock.release()


def test_a_dying_owner_is_waited_for(tmp_path: Path) -> None:
    first, second = FolderLock(str(tmp_path)), FolderLock(str(tmp_path))
    first.take()
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 1.0:
            first.release()

    second.take(patience=5.0, clock=lambda: now[0], sleep=sleep)
    assert 1.0 < now[0] < 2.0
    second.release()


def test_a_forked_child_does_not_keep_it(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    lock.take()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    lock.release()
    other = FolderLock(str(tmp_path))
    try:
        other.take(patience=5.0)
    finally:
        other.release()
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


def test_a_lock_without_a_readable_owner_is_held_all_the_same(tmp_path: Path) -> None:
    fd = os.open(tmp_path / NAME, os.O_RDWR | os.O_CREAT)
    try:
        os.write(fd, b"\xff{")
        fcntl.flock(fd, fcntl.LOCK_EX)
        with pytest.raises(EnvironmentFailure, match="an unknown process holds its lock"):
            FolderLock(str(tmp_path)).take(patience=0.0)
    finally:
        os.close(fd)


def test_a_file_system_without_locks_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, how: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock = FolderLock(str(tmp_path))
    lock.take()
    assert lock.unsupported
    lock.release()


def test_taking_the_folder_removes_what_dead_saves_left(tmp_path: Path) -> None:
    left = tmp_path / ".tmp-step-000000009-abcd"
    left.mkdir()
    (left / "rank-0.json").write_text("{")
    lock = FolderLock(str(tmp_path))
    take_folder(str(tmp_path), lock)
    assert lock.held
    assert not left.exists()
    lock.release()
