"""A reader holds a checkpoint, whoever it is, and lets go of it even when it is killed."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.checkpoint.files import DISK
from holdfast.checkpoint.reader_lock import LEASE_SECONDS, claim, hold, in_use
from tests.checkpoint.small_saves import save_all

READER = """
import sys
from holdfast.checkpoint.reader_lock import hold
with hold(sys.argv[1]):
    print("reading", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def step(tmp_path: Path) -> str:
    return save_all(DISK, str(tmp_path), 10)


def test_two_may_read_and_then_nobody_removes(step: str) -> None:
    assert not in_use(step)
    before = sorted(os.listdir(step))
    with hold(step):
        with hold(step):
            assert in_use(step)
            assert sorted(os.listdir(step)) == before, "nothing is written"
        assert in_use(step)
    assert not in_use(step)


def test_a_killed_reader_lets_go(step: str) -> None:
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, step], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert reader.stdout
    assert reader.stdin
    assert reader.stdout.readline() == b"reading\n"
    assert in_use(step)
    reader.kill()
    reader.wait()
    reader.stdout.close()
    reader.stdin.close()
    assert not in_use(step)


def test_what_is_being_removed_cannot_be_held(step: str) -> None:
    with claim(step) as free:
        assert free
        with pytest.raises(FileNotFoundError, match="removed by the job"), hold(step):
            pass


def test_what_was_renamed_meanwhile_is_gone(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def just_removed(fd: int, how: int) -> None:
        flock(fd, how)
        os.rename(step, f"{step}-gone")

    monkeypatch.setattr(fcntl, "flock", just_removed)
    with pytest.raises(FileNotFoundError, match="removed by the job"), hold(step):
        pass


def test_a_folder_without_a_manifest_is_nothing_to_read(tmp_path: Path) -> None:
    assert not in_use(str(tmp_path))
    assert not in_use(str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError), hold(str(tmp_path)):
        pass


def test_a_pipe_as_manifest_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(OSError, match="not a file"), hold(str(tmp_path)):
        pass


def test_without_locks_a_small_file_counts_for_a_day(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(fd: int, how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with hold(step):
        assert in_use(step)
        [lease] = [name for name in os.listdir(step) if name.startswith(".reader-")]
        long_ago = time.time() - LEASE_SECONDS - 60
        os.utime(os.path.join(step, lease), (long_ago, long_ago))
        assert not in_use(step), "its reader was killed a day ago"
    assert lease not in os.listdir(step)


def test_a_disk_that_takes_no_file_can_be_read(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only disk without locks: nothing is removed from here either."""

    def unsupported(fd: int, how: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    monkeypatch.setattr("holdfast.checkpoint.reader_lock._leave_lease", lambda folder: "")
    with hold(step):
        pass
