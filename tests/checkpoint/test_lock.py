"""One job a folder; the kernel drops the lock with its owner."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.checkpoint.lock import NAME, FolderLock, token_in
from holdfast.checkpoint.messages import FilePiece
from holdfast.checkpoint.resume import take_folder
from holdfast.checkpoint.writer_process import WriterProcess
from holdfast.errors import EnvironmentFailure
from tests.checkpoint import small_saves

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
        assert other.held
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


@pytest.mark.parametrize("kind", ["link", "dangling link", "hard link", "pipe", "folder"])
def test_what_is_not_our_lock_is_not_touched(kind: str, tmp_path: Path) -> None:
    victim, lock = tmp_path / "bashrc", tmp_path / "ckpts" / NAME
    lock.parent.mkdir()
    if kind != "dangling link":
        victim.write_text("alias ll='ls -l'")
    if kind == "hard link":
        lock.hardlink_to(victim)
    elif kind == "pipe":
        os.mkfifo(lock)
    elif kind == "folder":
        lock.mkdir()
    else:
        lock.symlink_to(victim)
    with pytest.raises(EnvironmentFailure, match="is a link or no file") as refused:
        FolderLock(str(lock.parent)).take(patience=0.0)
    assert refused.value.hint.endswith(f"rm {lock}")
    assert token_in(str(lock.parent)) == ""
    assert victim.exists() == (kind != "dangling link")
    if kind != "dangling link":
        assert victim.read_text() == "alias ll='ls -l'"


@pytest.mark.parametrize("kind", ["nfs4", "lustre", "ceph"])
def test_the_lock_of_another_machine_on_a_file_server_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    first, now = FolderLock(str(tmp_path)), [0.0]
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("socket.gethostname", lambda: "the-dead-host")
        first.take()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 95:  # the lease of a dead client
            first.release()

    waiting = {"clock": lambda: now[0], "sleep": sleep}
    with pytest.raises(EnvironmentFailure, match="on the-dead-host"):
        FolderLock(str(tmp_path)).take(**waiting)  # type: ignore[arg-type]
    assert 10 <= now[0] < 11, "not on a local disk: there the kernel knows"
    monkeypatch.setattr("holdfast.checkpoint.lock.filesystem_at", lambda _: kind)
    second, now[0] = FolderLock(str(tmp_path)), 0.0
    second.take(**waiting)  # type: ignore[arg-type]
    assert 95 < now[0] < 97
    said = capfd.readouterr().err
    assert said.count("waiting up to 150 s for the lock") == 1
    third, now[0] = FolderLock(str(tmp_path)), 0.0
    with pytest.raises(EnvironmentFailure, match="another job writes"):
        third.take(**waiting)  # type: ignore[arg-type]
    assert 10 <= now[0] < 11, "the owner is this machine: nothing to wait for"
    second.release()


def test_the_token_is_seen_by_others_while_the_lock_is_held(tmp_path: Path) -> None:
    lock = FolderLock(str(tmp_path))
    assert token_in(str(tmp_path)) == ""
    lock.take()
    assert token_in(str(tmp_path)) == lock.token
    lock.release()
    (tmp_path / NAME).write_bytes(b"[1]")
    assert token_in(str(tmp_path)) == ""


def test_a_writer_that_lost_the_folder_commits_nothing(tmp_path: Path) -> None:
    """As after a network partition: the server has given the lock to the next start."""
    old, new = FolderLock(str(tmp_path)), FolderLock(str(tmp_path))
    old.take()
    order = small_saves.request(str(tmp_path), 7, world=1)
    writer = WriterProcess()
    fd = os.memfd_create("state")
    os.posix_fallocate(fd, 0, 5000)
    piece = FilePiece(name="rank-0.safetensors", fd=fd, size=5000)
    order = msgspec.structs.replace(order, pieces=(piece,), owner=old.token)
    try:
        writer.ask(order, (fd,))
        first = writer.answer(30)
        (tmp_path / NAME).unlink()
        new.take()
        writer.ask(msgspec.structs.replace(order, step=8), (fd,))
        second = writer.answer(30)
    finally:
        writer.close()
        old.release()
        new.release()
    assert first is not None
    assert first.committed is not None
    assert second is not None
    assert second.failed is not None
    assert second.failed.what == "another start of the job has taken over the folder"
    assert [path.name for path in tmp_path.glob("step-*")] == ["step-000000007"]
