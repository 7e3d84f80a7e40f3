"""The memory of the first save is taken while training continues, and taken once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.memory_gate import MemoryGate
from holdfast.checkpoint.memory_room import NoRoomError
from holdfast.checkpoint.message_board import MemoryStore, MessageBoard
from holdfast.checkpoint.rank_files import TensorFile
from holdfast.checkpoint.staging import StagingBuffer
from holdfast.checkpoint.state import State
from holdfast.checkpoint.tensors import NamedTensor
from tests.checkpoint.buffers import file_size_limit, written


@pytest.fixture
def buffer() -> Iterator[StagingBuffer]:
    made = StagingBuffer()
    yield made
    made.close()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, str]]:
    """What is asked of the kernel: place, size, and the thread that asks."""
    found: list[tuple[int, int, str]] = []

    def take(fd: int, at: int, size: int) -> None:
        found.append((at, size, threading.current_thread().name))
        fallocate(fd, at, size)

    fallocate = os.posix_fallocate
    monkeypatch.setattr(os, "posix_fallocate", take)
    return found


def test_warming_does_not_hold_up_the_training(
    buffer: StagingBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here the kernel answers only after warm() has returned, which it must not wait for."""
    fallocate, returned = os.posix_fallocate, threading.Event()

    def slow(fd: int, at: int, size: int) -> None:
        assert returned.wait(60)
        fallocate(fd, at, size)

    monkeypatch.setattr(os, "posix_fallocate", slow)
    buffer.warm([NamedTensor("t", torch.zeros(3 << 20))], 0)
    assert os.fstat(buffer.fd).st_blocks == 0
    returned.set()
    buffer.settle()
    assert os.fstat(buffer.fd).st_blocks * 512 == buffer.capacity > 12 << 20


def test_a_save_waits_for_the_rest_and_takes_nothing_again(
    buffer: StagingBuffer, tmp_path: Path, taken: list[tuple[int, int, str]]
) -> None:
    tensor = torch.arange(8 << 20)
    buffer.warm([NamedTensor("t", tensor)], 4)
    staged = buffer.stage([NamedTensor("t", tensor)], b"tree and a little more")
    assert torch.equal(TensorFile(str(written(buffer, staged, tmp_path))).read("t"), tensor)
    assert {name for _, _, name in taken} == {"holdfast-memory"}
    ends = [at + size for at, size, _ in taken]
    assert [at for at, _, _ in taken] == [0, *ends[:-1]]
    assert ends[-1] == buffer.capacity
    buffer.warm([NamedTensor("t", tensor)], 4)
    assert len(taken) == len(ends), "there is enough already"


def test_warming_for_more_leaves_what_is_being_written(
    buffer: StagingBuffer, tmp_path: Path
) -> None:
    tensor = torch.arange(100_000)
    staged = buffer.stage([NamedTensor("t", tensor)], b"x")
    buffer.warm([NamedTensor("t", tensor), NamedTensor("more", torch.zeros(1 << 20))], 1)
    buffer.settle()
    assert buffer.capacity > 4 << 20
    assert torch.equal(TensorFile(str(written(buffer, staged, tmp_path))).read("t"), tensor)


def test_closing_ends_the_warming(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, asked = StagingBuffer(), []

    def until_closing(_fd: int, at: int, _size: int) -> None:
        asked.append(at)
        deadline = time.monotonic() + 60
        while not buffer._memory._closing and time.monotonic() < deadline:
            time.sleep(0.001)

    monkeypatch.setattr(os, "posix_fallocate", until_closing)
    buffer.warm([NamedTensor("t", torch.zeros(10 << 20))], 0)
    buffer.close()
    assert not any(each.name == "holdfast-memory" for each in threading.enumerate())
    assert asked in ([], [0]), "the rest was taken all the same"


def test_a_refusal_while_warming_is_the_next_save_s(buffer: StagingBuffer) -> None:
    tensors = [NamedTensor("t", torch.zeros(1).expand(50 << 20))]
    with file_size_limit(100 << 20):
        buffer.warm(tensors, 0)
        buffer.settle()
        assert os.fstat(buffer.fd).st_size == buffer.capacity == 0
        with pytest.raises(NoRoomError, match="File too large"):
            buffer.stage(tensors)


def test_a_save_that_is_due_waits_for_the_memory_and_training_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fallocate, may_take = os.posix_fallocate, threading.Event()

    def slow(fd: int, at: int, size: int) -> None:
        assert may_take.wait(60)
        fallocate(fd, at, size)

    monkeypatch.setattr(os, "posix_fallocate", slow)
    state = State(model=torch.nn.Linear(2048, 9000))
    with Checkpoint(tmp_path, state, every_steps=2) as ckpt:
        for _ in range(50):  # none of them may wait: the memory comes only afterwards
            ckpt.step()
        assert ckpt.last_committed is None
        assert not list(tmp_path.glob("*step-*"))
        may_take.set()
        while ckpt.last_committed is None:
            assert state.step < 10_000
            time.sleep(0.005)
            ckpt.step()


def test_the_gate_opens_when_every_rank_that_takes_memory_has_it() -> None:
    store = MemoryStore()
    first, second = (MemoryGate(MessageBoard(store, rank=rank, world_size=2)) for rank in range(2))
    assert first.is_closed(1, large=True)
    assert not first.is_closed(1, large=False)
    second.note(taking=True)
    assert first.is_closed(2, large=True)
    first.note(taking=True)
    first.note(taking=False)
    assert first.is_closed(50, large=True), "rank 1 has none yet"
    second.note(taking=False)
    second.note(taking=False)
    assert not first.is_closed(51, large=True)
    second.note(taking=True)
    assert not first.is_closed(52, large=True), "asked once it is open, the store has no say"
