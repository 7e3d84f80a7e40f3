"""A killed rank's last save: its writer finishes it, and the next attempt resumes from it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.analysis.checkpoints.manifest import RankPart
from holdfast.checkpoint import choose, commit, parts
from holdfast.checkpoint.abandoned_save import AbandonedSave
from holdfast.checkpoint.commit import MadeRoom, SaveFolder
from holdfast.checkpoint.files import DISK, Disk, OpenFile
from holdfast.checkpoint.lock import FolderLock
from holdfast.checkpoint.sign_of_life import SignOfLife
from holdfast.run.launch import terminate
from holdfast.system.proc import row_of
from tests.checkpoint.small_saves import Clock, content, request

SIZE = 8 << 20

# A rank that saves and is killed at once. Its writer is stopped, so that nothing is written before.
KILLED = """
import os, signal, sys, time
from holdfast.checkpoint.lock import FolderLock
from holdfast.checkpoint.messages import FilePiece, SaveOrder
from holdfast.checkpoint.writer_process import WriterProcess
folder, rank, world, size = sys.argv[1], *map(int, sys.argv[2:5])
lock = FolderLock(folder)
fds = []
if rank == 0 and sys.argv[5] == "lock":
    lock.take()
    fds = [lock.fd]
state = os.memfd_create("state")
os.pwrite(state, bytes([rank + 1]) * size, 0)
writer = WriterProcess()
def order(step):
    return SaveOrder(
        folder=folder, step=step, token=f"{step:02x}", rank=rank, world_size=world, lock=lock.fd,
        pieces=(FilePiece(name=f"rank-{rank}.safetensors", fd=state, size=size),))
writer.ask(order(10), (state, *fds))
writer.answer(None)
os.kill(writer.pid, signal.SIGSTOP)
writer.ask(order(20), (state, *fds))
print(writer.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_ranks(folder: Path, world: int, *, lock: str = "lock") -> list[int]:
    """The pids of their writers, stopped in their second save."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", KILLED, str(folder), str(rank), str(world), str(SIZE), lock],
            stdout=subprocess.PIPE,
        )
        for rank in range(world)
    ]
    writers = []
    for rank in started:
        assert rank.stdout
        writers.append(int(rank.stdout.readline()))
        assert rank.wait() == -signal.SIGKILL
        rank.stdout.close()
    return writers


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    return terminate.is_gone(row_of(pid))


def whole(folder: Path) -> list[int]:
    found = choose.candidates(str(folder))
    return [
        one.step
        for one in found
        if one.manifest and not one.problem and not choose.verify(one.path, one.manifest.files)
    ]


def test_writers_finish_the_save_of_killed_ranks(tmp_path: Path) -> None:
    writers = killed_ranks(tmp_path, 2)
    names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in writers]
    assert names == ["holdfast-writer"] * 2
    assert whole(tmp_path) == [10]
    for pid in writers:
        os.kill(pid, signal.SIGCONT)
    # As the next attempt: it waits for the lock, and then sees what there is.
    lock = FolderLock(str(tmp_path))
    lock.take()
    assert whole(tmp_path) == [20, 10]
    lock.release()
    until(lambda: all(map(is_gone, writers)))
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".tmp")]


def test_without_the_lock_it_gives_up(tmp_path: Path) -> None:
    """Another job may be in the folder already."""
    [writer] = killed_ranks(tmp_path, 1, lock="none")
    os.kill(writer, signal.SIGCONT)
    until(lambda: is_gone(writer))
    assert whole(tmp_path) == [10]
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".tmp")]


def test_a_rank_that_never_came_is_waited_for_5_seconds_and_no_more() -> None:
    clock = Clock()
    place = SaveFolder("/never/there", 10, "a")
    order = request("/never/there", 10)
    own = RankPart(rank=0, files=(), stall=0.0, seconds=0.0)

    class Empty(Disk):
        def listdir(self, path: str) -> list[str]:
            return []

    control = parts.SaveControl(clock=lambda: clock.now, sleep=clock.sleep, left_alone=lambda: True)
    with pytest.raises(parts.SaveError, match="rank 1 did not write its part"):
        parts.gather(Empty(), place, own, order, control, lambda names: None)
    assert parts.ALONE_PATIENCE < clock.now < parts.ALONE_PATIENCE + 1


# --- slow fsync ----------------------------------------------------------------------------------


def test_a_rank_in_a_long_fsync_gives_signs_of_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.checkpoint.sign_of_life.EVERY", 0.01)
    with SignOfLife(DISK, str(tmp_path), 3):
        sizes: set[int] = set()

        def grew() -> bool:
            sizes.update(entry.stat().st_size for entry in os.scandir(tmp_path))
            return len(sizes) > 3

        until(grew)
        assert os.listdir(tmp_path) == [".alive-3"]
    assert os.listdir(tmp_path) == []


def test_patience_lasts_through_an_fsync_of_ten_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 1's file has its full size from the first second on; its fsync takes 600 s."""
    monkeypatch.setattr("holdfast.checkpoint.sign_of_life.EVERY", 0.01)
    order = request(str(tmp_path), 10)
    place = SaveFolder(str(tmp_path), 10, order.token)
    clock, finished = Clock(), threading.Event()

    def wait() -> None:
        finished.wait(60)

    class SlowSync(Disk):
        def create(self, path: str) -> OpenFile:
            file = super().create(path)
            if path.endswith("rank-1.safetensors"):
                file.fsync = wait  # type: ignore[method-assign]
            return file

    def rank_1() -> None:
        control = parts.SaveControl()
        room = MadeRoom(DISK, place, order)
        part = commit.write_part(
            SlowSync(), place, 1, content(1, 10), stall=0.0, control=control, room=room
        )
        commit.hand_over(DISK, place, part)

    other = threading.Thread(target=rank_1)
    other.start()

    def sleep(seconds: float) -> None:
        if finished.is_set():  # it only has to come now
            time.sleep(seconds)
            return
        # Half the patience goes by, as soon as there is a new sign.
        before = seen()
        until(lambda: seen() != before)
        clock.sleep(order.patience / 2)
        if clock.now > 600:
            finished.set()

    def seen() -> dict[str, int]:
        return parts.signs(DISK, place, os.listdir(place.temporary))

    control = parts.SaveControl(clock=lambda: clock.now, wall=lambda: clock.now, sleep=sleep)
    room = MadeRoom(DISK, place, order)
    own = commit.write_part(DISK, place, 0, content(0, 10), stall=0.0, control=control, room=room)
    commit.commit(DISK, place, own, order, control, room)
    other.join()
    assert clock.now > 600
    assert whole(tmp_path) == [10]


# --- the launcher waits for it -------------------------------------------------------------------

RANK_WITH_A_WRITER = """
import os, sys, time
if os.fork() == 0:
    open("/proc/self/comm", "w").write("holdfast-writer")
    print(os.getpid(), flush=True)
    for _ in range(int(sys.argv[2])):
        open(sys.argv[1], "a").write(".")
        time.sleep(0.01)
    os.rename(sys.argv[1], sys.argv[1] + ".done")
    os._exit(0)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("writes", "seconds", "finished"), [(50, 60.0, True), (100_000, 0.5, False)]
)
def test_a_rank_that_is_ended_leaves_its_writer_time(
    tmp_path: Path, writes: int, seconds: float, finished: bool
) -> None:
    rank = subprocess.Popen(
        [sys.executable, "-c", RANK_WITH_A_WRITER, str(tmp_path / "save"), str(writes)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert rank.stdout
    writer = int(rank.stdout.readline())
    began = time.monotonic()
    assert terminate.end([rank.pid], at_once=[rank.pid], for_saves=lambda: seconds) == []
    assert is_gone(writer), "nothing is left behind, whatever it did"
    assert (tmp_path / "save.done").exists() is finished
    assert time.monotonic() - began < 30
    rank.wait()
    rank.stdout.close()


# --- the next attempt waits for it ---------------------------------------------------------------


def owner(pid: int, host: str, run: str = "") -> bytes:
    return json.dumps({"pid": pid, "host": host, "run": run, "since": 0.0}).encode()


def test_only_a_save_that_moves_and_has_lost_its_rank_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "mine")
    here, nobody = socket.gethostname(), 2**22 + 1
    part = tmp_path / ".tmp-step-000000010-ab" / "rank-0.safetensors"
    part.parent.mkdir()
    for lost, who in (
        (True, owner(nobody, here)),
        (True, owner(1, "elsewhere", "mine")),
        (False, owner(1, here)),
        (False, owner(1, "elsewhere", "another")),
        (False, owner(1, "elsewhere")),
        (False, b"torn"),
    ):
        save = AbandonedSave(str(tmp_path))
        part.write_bytes(b"1")
        assert save.is_being_finished(who) is lost
        assert not save.is_being_finished(who), "it stands still"
        part.write_bytes(b"12")
        assert save.is_being_finished(who) is lost
    assert capfd.readouterr().err.count("waiting for the last save") == 2
    part.unlink()
    part.parent.rmdir()
    assert not AbandonedSave(str(tmp_path)).is_being_finished(owner(nobody, here))
