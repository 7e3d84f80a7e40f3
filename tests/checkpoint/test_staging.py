"""Staging: the buffer holds the very bytes of the file; without memory it says so."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from holdfast.checkpoint.memory_room import NoRoomError
from holdfast.checkpoint.rank_files import TensorFile
from holdfast.checkpoint.staging import StagingBuffer, write_directly
from holdfast.checkpoint.tensors import NamedTensor
from tests.checkpoint.buffers import file_size_limit, written
from tests.memory_limit import CannotLimitError, memory_limit


@pytest.fixture
def buffer() -> Iterator[StagingBuffer]:
    made = StagingBuffer()
    yield made
    made.close()


def some_tensors() -> list[NamedTensor]:
    base = torch.arange(40, dtype=torch.float32).reshape(5, 8)
    return [
        NamedTensor("small", torch.tensor(7, dtype=torch.int8)),
        NamedTensor("strided", base.t()),
        NamedTensor("empty", torch.empty(0, 3)),
        NamedTensor("half", torch.randn(3).to(torch.bfloat16)),
        NamedTensor("conj", torch.randn(3, dtype=torch.complex64).conj()),
        NamedTensor("double", torch.randn(1000, dtype=torch.float64)),
        NamedTensor("flags", torch.tensor([True, False, True])),
    ]


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_what_was_staged_is_read_again(buffer: StagingBuffer, tmp_path: Path, threads: int) -> None:
    buffer.threads = threads
    large = torch.arange(1_000_003, dtype=torch.float32)
    tensors = [
        *some_tensors(),
        NamedTensor("large", large),
        NamedTensor("backwards", large.flip(0)),
    ]
    staged = buffer.stage(tensors, b"the tree")
    found = TensorFile(str(written(buffer, staged, tmp_path)))
    assert (tmp_path / "rank-0.json").read_bytes() == b"the tree"
    assert sorted(found.names) == sorted(each.name for each in tensors)
    for name, tensor in tensors:
        again = found.read(name)
        if tensor.dtype == torch.complex64:
            again = again.view(torch.complex64)
        assert torch.equal(again, tensor), name


def test_a_second_save_has_the_new_values_in_the_same_memory(
    buffer: StagingBuffer, tmp_path: Path
) -> None:
    weight = torch.zeros(100)
    buffer.stage([NamedTensor("weight", weight)])
    capacity = buffer.capacity
    weight += 1
    staged = buffer.stage([NamedTensor("weight", weight)])
    weight += 1  # after the stall the training may continue
    assert TensorFile(str(written(buffer, staged, tmp_path))).read("weight").tolist() == [1.0] * 100
    assert buffer.capacity == capacity


def test_the_buffer_grows_and_keeps_its_descriptor(buffer: StagingBuffer, tmp_path: Path) -> None:
    fd = buffer.fd
    for count in (10, 1_000_000, 10):
        tensor = torch.randn(count)
        staged = buffer.stage([NamedTensor("t", tensor)], b"x")
        assert torch.equal(TensorFile(str(written(buffer, staged, tmp_path))).read("t"), tensor)
    assert buffer.fd == fd
    assert os.fstat(fd).st_size == buffer.capacity > 4_000_000


def test_a_rank_without_tensors_has_one_file(buffer: StagingBuffer) -> None:
    assert [p.name for p in buffer.stage([], b"{}").pieces(3, buffer.fd)] == ["rank-3.json"]


def test_reserving_takes_the_memory_at_once(buffer: StagingBuffer) -> None:
    buffer.reserve(5 << 20)
    assert os.fstat(buffer.fd).st_blocks * 512 == buffer.capacity == 5 << 20


def test_another_process_reads_it_through_the_descriptor(buffer: StagingBuffer) -> None:
    staged = buffer.stage(some_tensors(), b"the tree")
    code = f"import os; print(os.pread({buffer.fd}, {staged.text_size}, {staged.text_at}))"
    said = subprocess.run(
        [sys.executable, "-c", code], pass_fds=[buffer.fd], capture_output=True, check=True
    )
    assert said.stdout == b"b'the tree'\n"


def test_too_little_memory_is_refused_before_any_is_taken() -> None:
    buffer = StagingBuffer(room=lambda: 1 << 20)
    tensors = [NamedTensor("t", torch.zeros(1 << 20))]
    with pytest.raises(NoRoomError, match="is free"):
        buffer.stage(tensors)
    with pytest.raises(NoRoomError, match="is free"):
        buffer.warm(tensors, 0)
    assert os.fstat(buffer.fd).st_blocks == 0
    buffer.close()


def test_memory_that_others_take_meanwhile_is_noticed_and_what_was_taken_given_back() -> None:
    """Eight ranks of one machine see the same room; the last of them must not bring it down."""
    looks = iter([4 << 30, 4 << 30, 300 << 20])
    buffer = StagingBuffer(room=lambda: next(looks))
    with pytest.raises(NoRoomError, match="free memory fell to 300 MiB"):
        buffer.reserve(700 << 20)
    assert os.fstat(buffer.fd).st_blocks == buffer.capacity == 0
    buffer.close()


def test_a_late_rank_may_take_what_is_left() -> None:
    """Its peers have theirs already: what is free need not do for all of them again."""
    buffer = StagingBuffer(peers=8, room=lambda: 20 << 20)
    buffer.reserve(4 << 20)
    assert buffer.capacity == 4 << 20
    buffer.close()


def test_a_refusal_of_the_kernel_leaves_the_buffer_as_it_was(
    buffer: StagingBuffer, tmp_path: Path
) -> None:
    small = [NamedTensor("t", torch.arange(10))]
    buffer.stage(small)
    with file_size_limit(100 << 20), pytest.raises(NoRoomError, match="File too large"):
        buffer.reserve(200 << 20)
    assert os.fstat(buffer.fd).st_size == buffer.capacity == 1 << 20
    staged = buffer.stage(small)
    assert TensorFile(str(written(buffer, staged, tmp_path))).read("t").tolist() == list(range(10))


@pytest.mark.lab
def test_a_cgroup_without_room_refuses_instead_of_being_killed() -> None:
    code = """
        from holdfast.checkpoint.memory_room import NoRoomError
        from holdfast.checkpoint.staging import StagingBuffer
        try:
            StagingBuffer().reserve(900 << 20)
        except NoRoomError as refused:
            print(refused.sentence)
    """
    try:
        with memory_limit(600 << 20) as enter:
            said = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(code)],
                preexec_fn=enter, capture_output=True, text=True, check=False,
            )  # fmt: skip
    except CannotLimitError as why:
        pytest.skip(str(why))
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("a copy of the state takes 900 MiB")


def test_written_directly_it_is_the_same_file(buffer: StagingBuffer, tmp_path: Path) -> None:
    tensors = some_tensors()
    staged = buffer.stage(tensors)
    through_memory = written(buffer, staged, tmp_path).read_bytes()
    entry = write_directly(str(tmp_path / "direct.safetensors"), tensors)
    assert (tmp_path / entry.name).read_bytes() == through_memory
    assert (entry.size, entry.sha256) == (
        len(through_memory), (hashlib.sha256(through_memory).hexdigest(),),
    )  # fmt: skip
