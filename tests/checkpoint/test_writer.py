"""Real writer processes on a real disk: they commit, fail, are killed, and end with their rank."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.analysis.checkpoints.manifest import step_of_temporary
from holdfast.checkpoint import choose
from holdfast.checkpoint.messages import (
    CheckpointInfo,
    FilePiece,
    SaveCommitted,
    SaveFailure,
    SaveOrder,
)
from holdfast.checkpoint.writer_process import WriterProcess

SIZE = (1 << 20) + 77


@pytest.fixture
def buffer() -> Iterator[int]:
    fd = os.memfd_create("state")
    os.pwrite(fd, os.urandom(SIZE), 0)
    yield fd
    os.close(fd)


@pytest.fixture
def writer() -> Iterator[WriterProcess]:
    made = WriterProcess()
    yield made
    made.close(0.0)


def order(
    folder: Path, step: int, fd: int, *, rank: int = 0, world: int = 1, size: int = SIZE
) -> SaveOrder:
    pieces = (
        FilePiece(name=f"rank-{rank}.safetensors", fd=fd, offset=0, size=size),
        FilePiece(name=f"rank-{rank}.json", text='{"ünit": 1}'),
    )
    return SaveOrder(
        folder=str(folder),
        step=step,
        token=f"{step:02x}",
        rank=rank,
        world_size=world,
        pieces=pieces,
        stall=0.25,
        about=CheckpointInfo(epoch=2),
    )


def committed(writer: WriterProcess, save: SaveOrder, fd: int) -> SaveCommitted:
    writer.ask(save, (fd,))
    answer = writer.answer(30)
    assert answer
    assert answer.committed, answer
    return answer.committed


def failed(writer: WriterProcess, save: SaveOrder, fd: int) -> SaveFailure:
    writer.ask(save, (fd,))
    answer = writer.answer(30)
    assert answer
    assert answer.failed, answer
    return answer.failed


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def temporaries(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if step_of_temporary(name) is not None]


def steps(folder: Path) -> list[int]:
    """All that verify, newest first."""
    found = choose.candidates(str(folder))
    assert not any(one.problem for one in found)
    assert not any(choose.verify(one.path, one.manifest.files) for one in found if one.manifest)
    return [one.step for one in found]


def test_the_file_has_the_bytes_of_the_buffer(
    tmp_path: Path, buffer: int, writer: WriterProcess
) -> None:
    folder = tmp_path / "a" / "ckpts"
    for step in (10, 20, 30, 40):
        done = committed(writer, order(folder, step, buffer), buffer)
        path = Path(done.path)
        assert (done.step, path) == (step, folder / f"step-{step:09d}")
        assert (path / "rank-0.safetensors").read_bytes() == os.pread(buffer, SIZE, 0)
        assert (path / "rank-0.json").read_text() == '{"ünit": 1}'
        assert (done.stall, done.bytes) == (0.25, SIZE + 12)
    assert steps(folder) == [40, 30, 20], "keep=3"
    pid = writer.pid
    # The buffer grew: same descriptor, more bytes.
    os.pwrite(buffer, os.urandom(SIZE), SIZE)
    done = committed(writer, order(folder, 50, buffer, size=2 * SIZE), buffer)
    assert (Path(done.path) / "rank-0.safetensors").stat().st_size == 2 * SIZE
    assert writer.pid == pid
    assert not temporaries(folder)


def test_two_ranks_one_folder(tmp_path: Path, buffer: int, writer: WriterProcess) -> None:
    other = WriterProcess()
    writer.ask(order(tmp_path, 10, buffer, world=2), (buffer,))
    assert writer.answer(0.2) is None, "rank 1 has not written yet"
    other.ask(order(tmp_path, 10, buffer, rank=1, world=2), (buffer,))
    answers = [other.answer(30), writer.answer(30)]
    assert answers[0]
    assert answers[0].written
    assert answers[1]
    assert answers[1].committed
    assert answers[1].committed.bytes == 2 * (SIZE + 12)
    # Rank 1 cannot: rank 0 hears of it at once, and nothing is left.
    writer.ask(order(tmp_path, 20, buffer, world=2), (buffer,))
    wrong = failed(other, order(tmp_path, 20, buffer, rank=1, world=2, size=9 * SIZE), buffer)
    assert "the buffer ends at" in wrong.what
    answer = writer.answer(30)
    assert answer
    assert answer.failed
    assert answer.failed.what.startswith("rank 1: the buffer ends at")
    other.close()
    assert steps(tmp_path) == [10]
    assert not temporaries(tmp_path)


def test_a_rank_whose_writer_died_tells_rank_0(
    tmp_path: Path, buffer: int, writer: WriterProcess
) -> None:
    other = WriterProcess()
    other.ask(order(tmp_path, 1, buffer, rank=1, world=2), (buffer,))
    assert other.answer(30)
    writer.ask(order(tmp_path, 10, buffer, world=2), (buffer,))
    until(lambda: ".tmp-step-000000010-0a" in os.listdir(tmp_path))
    assert other.pid
    os.kill(other.pid, signal.SIGSTOP)
    other.ask(order(tmp_path, 10, buffer, rank=1, world=2), (buffer,))
    os.kill(other.pid, signal.SIGKILL)
    died = other.answer(30)
    assert died
    assert died.failed
    assert died.failed.what == "the process that writes was killed by signal 9"
    answer = writer.answer(30)
    assert answer
    assert answer.failed
    assert answer.failed.what == f"rank 1: {died.failed.what}"
    other.close()


def test_after_its_writer_was_killed_the_next_save_starts_another(
    tmp_path: Path, buffer: int, writer: WriterProcess
) -> None:
    committed(writer, order(tmp_path, 10, buffer), buffer)
    writer.ask(order(tmp_path, 20, buffer, world=2), (buffer,))
    until(lambda: bool(temporaries(tmp_path)))
    assert writer.pid
    os.kill(writer.pid, signal.SIGKILL)
    answer = writer.answer(30)
    assert answer
    assert answer.failed
    assert steps(tmp_path) == [10]
    committed(writer, order(tmp_path, 30, buffer), buffer)
    assert steps(tmp_path) == [30, 10]
    assert not temporaries(tmp_path), "also what the killed one left"


def test_signals_for_the_group_do_not_end_a_last_save(
    tmp_path: Path, buffer: int, writer: WriterProcess
) -> None:
    committed(writer, order(tmp_path, 10, buffer), buffer)
    assert writer.pid
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(writer.pid, number)
    pid = writer.pid
    committed(writer, order(tmp_path, 20, buffer), buffer)
    assert writer.pid == pid


def test_closed_in_the_middle_it_clears_up(tmp_path: Path, buffer: int) -> None:
    writer = WriterProcess()
    writer.ask(order(tmp_path, 10, buffer, world=2), (buffer,))
    until(lambda: bool(temporaries(tmp_path)))
    assert writer.close(0.0) is None
    until(lambda: os.listdir(tmp_path) == [])


KILLED_WITH_A_CHILD = """
import os, sys, time
from holdfast.checkpoint.messages import FilePiece, SaveOrder
from holdfast.checkpoint.writer_process import WriterProcess
writer = WriterProcess()
writer.ask(SaveOrder(folder=sys.argv[1], step=1, token="0f", rank=0, world_size=2,
                pieces=(FilePiece(name="rank-0.json", text="{}"),)), ())
child = os.fork()  # as a loader's worker does: it holds the writer's pipe open
if child == 0:
    time.sleep(60)
    os._exit(0)
print(writer.pid, child, flush=True)
time.sleep(60)
"""


def test_it_ends_with_its_rank_though_a_child_holds_the_pipe(tmp_path: Path) -> None:
    rank = subprocess.Popen(
        [sys.executable, "-c", KILLED_WITH_A_CHILD, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert rank.stdout
    writer, child = map(int, rank.stdout.readline().split())
    try:
        until(lambda: bool(temporaries(tmp_path)))
        rank.kill()
        rank.wait()
        until(lambda: not os.path.exists(f"/proc/{writer}") or _is_zombie(writer))
        assert os.listdir(tmp_path) == []
    finally:
        os.kill(child, signal.SIGKILL)
        rank.stdout.close()


def _is_zombie(pid: int) -> bool:
    """It may have been handed to a parent that never asks."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_folder_that_cannot_be_is_an_answer(
    tmp_path: Path, buffer: int, writer: WriterProcess
) -> None:
    (tmp_path / "file").write_text("")
    wrong = failed(writer, order(tmp_path / "file" / "ckpts", 10, buffer), buffer)
    assert wrong.errno == errno.ENOTDIR
    committed(writer, order(tmp_path / "ckpts", 20, buffer), buffer)
