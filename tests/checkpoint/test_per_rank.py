"""Model and optimizer of each rank's own: saved by each, resumed by each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from holdfast.analysis.checkpoints.manifest import MANIFEST, decode
from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.compare import Accept
from holdfast.checkpoint.reading.find import opened
from holdfast.checkpoint.reading.load import load
from holdfast.checkpoint.reading.saved_state import tensors_by_path
from holdfast.checkpoint.state import State
from holdfast.errors import ConfigError, ResumeRefused
from tests.checkpoint.thread_ranks import ThreadRanks

BOTH = ("model", "optimizer")


class Stage:
    """One rank's part of a model: its width is a pipeline stage's, its values are its own."""

    def __init__(self, rank: int, width: int, per_rank: tuple[str, ...]) -> None:
        self.model = nn.Linear(4, width)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.fill_(rank + 1.0)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.rank = rank
        self.state = State(model=self.model, optimizer=self.optimizer, per_rank=per_rank)

    def train(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.full((1, 4), self.rank + 0.5)).square().sum().backward()
        self.optimizer.step()

    def values(self) -> list[torch.Tensor]:
        momenta = [one for kept in self.optimizer.state.values() for one in kept.values()]
        return [one.detach().clone() for one in [*self.model.parameters(), *momenta]]


def launch(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    size: int = 2,
    widths: tuple[int, ...] = (3, 3),
    per_rank: tuple[str, ...] = BOTH,
    steps: int = 3,
    save_at: int = 0,
    accept: tuple[Accept, ...] = (),
) -> list[Any]:
    """What each rank has in the end, or the refusal it got."""

    def work(rank: int) -> Any:
        stage = Stage(rank, widths[rank], per_rank)
        with Checkpoint(folder, stage.state, every="1h") as ckpt:
            try:
                ckpt.resume(accept=accept)
            except ResumeRefused as refused:
                return refused
            while stage.state.step < steps:
                stage.train()
                ckpt.step()
                if stage.state.step == save_at:
                    assert ckpt.save()
        return stage.values()

    return ThreadRanks(size, monkeypatch).run(work)


@pytest.mark.parametrize("widths", [(3, 3), (3, 5)], ids=["equal shapes", "other shapes"])
def test_every_rank_resumes_its_own_model(
    widths: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = launch(tmp_path / "a", monkeypatch, widths=widths, steps=6)
    launch(tmp_path / "b", monkeypatch, widths=widths, steps=3, save_at=3)
    resumed = launch(tmp_path / "b", monkeypatch, widths=widths, steps=6)
    for mine, expected in zip(resumed, undisturbed, strict=True):
        assert len(mine) == len(expected) == 8
        assert all(map(torch.equal, mine, expected))
    step = tmp_path / "b" / "step-000000003"
    manifest = decode((step / MANIFEST).read_bytes())
    assert manifest.per_rank == BOTH
    assert {entry.name for entry in manifest.files} >= {"rank-0.safetensors", "rank-1.safetensors"}


@pytest.mark.parametrize(
    ("again", "sentence", "hint"),
    [
        ({"widths": (3, 7)}, "the tensors of rank 1 differ (model.weight: float32 [5, 4]", "start"),
        (
            {"widths": (3, 5), "per_rank": ()},
            'it was saved with per_rank=("model", "optimizer"), this job has per_rank=()',
            'make the State with per_rank=("model", "optimizer")',
        ),
        (
            {"widths": (3,), "size": 1, "accept": ("world-size",)},
            "saved by 2 ranks, each with its own model and optimizer, and this job has 1",
            "start with 2 ranks",
        ),
    ],
    ids=["another shape", "no longer per rank", "fewer ranks"],
)
def test_what_does_not_fit_is_refused(
    again: dict[str, Any],
    sentence: str,
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    launch(tmp_path, monkeypatch, widths=(3, 5), steps=1, save_at=1)
    found = launch(tmp_path, monkeypatch, **{"steps": 1, **again})
    refused = [one for one in found if isinstance(one, ResumeRefused)]
    assert refused
    assert sentence in refused[-1].sentence
    assert refused[-1].hint.startswith(hint)


def test_a_reader_says_whose_model_it_wants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0's weights would fit the model of rank 1, and be wrong."""
    _, second = launch(tmp_path, monkeypatch, save_at=3)
    with pytest.raises(ConfigError, match="each of its 2 ranks saved its own model and optimizer"):
        load(tmp_path)
    model = nn.Linear(4, 3)
    with load(tmp_path, model=model, rank=1):
        assert all(map(torch.equal, model.parameters(), second))
    with opened(str(tmp_path)) as found:
        names = tensors_by_path(found.path, found.manifest)
    assert {name.partition(": ")[0] for name in names} == {"rank 0", "rank 1"}


def test_a_state_of_one_model_may_keep_the_optimizer_per_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(rank: int) -> Any:
        model = nn.ParameterList([nn.Parameter(torch.ones(2)) for _ in range(4)])
        mine = list(model)[rank::2]  # as ZeRO does
        optimizer = torch.optim.SGD(mine, lr=0.1, momentum=0.9)
        state = State(model=model, optimizer=optimizer, per_rank=["optimizer"])
        with Checkpoint(tmp_path, state, every="1h") as ckpt:
            first = ckpt.resume()
            for _ in range(0 if first else 3):
                for parameter in model:
                    parameter.grad = torch.full((2,), rank + 1.0)
                optimizer.step()
                with torch.no_grad():  # the owner's values go to the others
                    for i, parameter in enumerate(model):
                        parameter.fill_(i)
                ckpt.step()
            assert ckpt.save()
        return [optimizer.state[one]["momentum_buffer"].tolist() for one in mine]

    first = ThreadRanks(2, monkeypatch).run(work)
    assert first[0] != first[1]
    assert ThreadRanks(2, monkeypatch).run(work) == first
