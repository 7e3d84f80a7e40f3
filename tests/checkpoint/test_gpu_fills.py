"""Which copies go through pinned memory; the copies themselves: python -m tools.gpu_fills."""

from __future__ import annotations

import pytest
import torch

from holdfast.checkpoint import gpu_fills

PLAIN = torch.zeros(2, 3)


class OnGpu(torch.Tensor):
    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True


@pytest.mark.parametrize(
    ("target", "source"),
    [
        (PLAIN, torch.ones(2, 3)),
        (torch.zeros(2, 3).as_subclass(OnGpu), torch.ones(2, 3)),
    ],
    ids=["on the CPU", "no plain tensor"],
)
def test_others_are_copied_by_torch(target: torch.Tensor, source: torch.Tensor) -> None:
    assert not gpu_fills.is_for_gpu(target, source)


def test_a_little_is_copied_plainly() -> None:
    targets = [torch.zeros(5), torch.zeros(3, dtype=torch.int64)]
    sources = [torch.arange(5.0), torch.arange(3)]
    gpu_fills.copy_to_gpus(list(zip(targets, sources, strict=True)), threads=8)
    assert all(map(torch.equal, targets, sources))


def test_every_byte_is_in_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_fills, "CHUNK", 8)
    sources = [torch.arange(5, dtype=torch.float32), torch.tensor(True), torch.zeros(2, 4).half()]
    pairs = [(torch.zeros_like(source), source) for source in sources]
    chunks = list(gpu_fills._chunks(pairs))
    assert [chunk.target.numel() for chunk in chunks] == [8, 8, 4, 1, 8, 8]
    starts = [0, 8, 16, 0, 0, 8]
    memory = [pairs[0]] * 3 + [pairs[1]] + [pairs[2]] * 2
    for (target, source), start, chunk in zip(memory, starts, chunks, strict=True):
        assert chunk.source == source.data_ptr() + start
        assert chunk.target.data_ptr() == target.data_ptr() + start
