"""Values come whole out of mapped files, whatever the threads; nothing stays mapped."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from holdfast.checkpoint import copying
from holdfast.checkpoint.loading import Fill, LaterCopies, fill_all


@pytest.mark.parametrize("threads", [1, 3])
def test_large_small_strided_and_of_another_type(threads: int) -> None:
    large = torch.arange(3 * copying.SMALL // 4, dtype=torch.float32)
    sources = [large, torch.ones(3), torch.ones(0), torch.arange(6.0).reshape(2, 3).t(),
               torch.arange(4, dtype=torch.int64), torch.tensor(7.0)]  # fmt: skip
    targets = [torch.full(one.shape, -1.0) for one in sources]
    strided = torch.full((4, 2), -1.0)
    fills = [Fill(*pair) for pair in zip(targets, sources, strict=True)]
    fill_all([*fills, Fill(strided[:, 1], torch.arange(4.0))], threads=threads)
    for target, source in zip(targets, sources, strict=True):
        assert torch.equal(target, source.float())
    assert strided.tolist() == [[-1, 0], [-1, 1], [-1, 2], [-1, 3]]


def test_a_parameter_is_filled_without_its_history() -> None:
    parameter = torch.nn.Parameter(torch.zeros(5))
    with torch.no_grad():
        fill_all([Fill(parameter, torch.ones(5)), Fill(parameter[:2], torch.zeros(2))])
    assert parameter.tolist() == [0, 0, 1, 1, 1]


def test_what_was_copied_does_not_follow_the_source(tmp_path: Path) -> None:
    source = torch.arange(5.0)
    copies = LaterCopies()
    mine = copies.own(source, "cpu")
    copies.fill()
    source.zero_()
    copies.fill()
    assert mine.tolist() == [0, 1, 2, 3, 4], "and is filled once"
