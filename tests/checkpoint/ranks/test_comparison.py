"""Ranks that hold different state are told at once; healthy replicas never."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.ranks import comparison, contents, differences
from holdfast.checkpoint.ranks.contents import RankContents
from holdfast.checkpoint.ranks.differences import RankDifference, distance
from holdfast.checkpoint.state import State
from holdfast.errors import RanksDiffer
from tests.checkpoint.thread_ranks import SharedMemory, ThreadRanks

Make = Callable[[int], tuple[nn.Module, torch.optim.Optimizer]]


def network(seed: int = 0, width: int = 4, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Without the generator that threads share."""
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.Linear(width, 2))
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=noise))
    return model.to(dtype)


def adam(model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: float) -> None:
    dtype = next(model.parameters()).dtype
    data = torch.arange(12.0).reshape(3, 4).to(dtype) * batch
    optimizer.zero_grad()
    model(data).square().mean().backward()
    optimizer.step()


def job(
    folder: Path,
    make: Make,
    monkeypatch: pytest.MonkeyPatch,
    *,
    batch: Callable[[int], float] = lambda _: 1.0,
    ranks: int = 2,
    before: Callable[[int, nn.Module], None] = lambda *_: None,
    **given_to_state: Any,
) -> list[tuple[int, str]]:
    """For each rank the step it came to and the refusal it got."""

    def work(rank: int) -> tuple[int, str]:
        model, optimizer = make(rank)
        state = State(model=model, optimizer=optimizer, **given_to_state)
        with Checkpoint(folder, state, every="1h") as ckpt:
            ckpt.resume()
            try:
                while state.step < 5:
                    train(model, optimizer, batch(rank))
                    before(rank, model)
                    ckpt.step()
            except RanksDiffer as refused:
                return state.step, str(refused)
        return state.step, ""

    return ThreadRanks(ranks, monkeypatch).run(work)


class Muon(torch.optim.Optimizer):
    """Each rank keeps momentum for its share of the parameters, as Keller Jordan's does; here all
    apply the same update."""

    def __init__(self, parameters: Any, rank: int) -> None:
        super().__init__(parameters, {"lr": 0.01})
        self.rank = rank

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        with torch.no_grad():
            for i, parameter in enumerate(self.param_groups[0]["params"]):
                if i % 2 == self.rank:
                    kept = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                    kept.add_(parameter.grad)
                parameter.sub_(0.01)


REFUSED: dict[str, tuple[Make, dict[str, Any], list[str]]] = {
    "experts of equal shapes": (
        lambda rank: adam(network(seed=rank)),
        {},
        ["rank 1 has other values", "model.0.weight", "expert or tensor parallelism",
         'per_rank=("model", "optimizer")', "HOLDFAST_ACCEPT=ranks", "[ranks-differ]"],
    ),
    "stages of other shapes": (
        lambda rank: adam(network(width=4 + rank)),
        {},
        ["tensors of other shapes", "[4, 4] on rank 0, float32 [5, 4] on rank 1"],
    ),
    "stages of other names": (
        lambda rank: adam(network() if rank == 0 else nn.Sequential(nn.Linear(4, 2))),
        {},
        ["has other tensors", "pipeline stages", "absent on rank 1"],
    ),
    "an optimizer that keeps a part": (
        lambda rank: (model := network(), Muon(model.parameters(), rank)),
        {},
        ["other optimizer state", "momentum", "Muon", 'State(…, per_rank=("optimizer",))'],
    ),
    "replicas that average now and then": (
        lambda _: adam(network()),
        {"batch": lambda rank: 1.0 + rank},
        ["rank 1 has other values", "LocalSGD", 'per_rank=("model", "optimizer")'],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_ranks_that_differ_are_refused_at_the_second_step(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, more, said = REFUSED[name]
    found = job(tmp_path, make, monkeypatch, **more)
    assert [step for step, _ in found] == [2, 2]
    assert found[0] == found[1], "all ranks say the same"
    for words in said:
        assert words in found[0][1]


def test_each_rank_saving_its_own_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = REFUSED["stages of other shapes"][0]
    found = job(tmp_path, make, monkeypatch, per_rank=("model", "optimizer"))
    assert found == [(5, "")] * 2


def test_accepted_ranks_go_on_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_ACCEPT", "ranks")
    found = job(tmp_path, lambda rank: adam(network(seed=rank)), monkeypatch)
    assert found == [(5, "")] * 2
    assert capfd.readouterr().err.count("and only rank 0's would be saved") == 1


# --- healthy -------------------------------------------------------------------------------------


def test_replicas_are_not_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        make: Make = lambda _, dtype=dtype: adam(network(dtype=dtype))  # type: ignore[misc] # noqa: E731
        assert job(tmp_path / str(dtype), make, monkeypatch, ranks=3) == [(5, "")] * 3
    assert "differ" not in capfd.readouterr().err


def test_buffers_may_differ_and_it_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def before(rank: int, model: nn.Module) -> None:
        model[1].running_mean.fill_(rank)  # type: ignore[index]

    assert job(tmp_path, lambda _: adam(network()), monkeypatch, before=before) == [(5, "")] * 2
    said = capfd.readouterr().err
    assert said.count("buffers differ between ranks (model.1.running_mean): rank 0's are") == 1


def test_rounding_is_said_and_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    calls = [0, 0]

    def before(rank: int, model: nn.Module) -> None:
        calls[rank] += 1
        if calls[rank] == 2:  # gradients would be exchanged
            with torch.no_grad():
                model[0].weight.mul_(1 + 1e-6 * rank)  # type: ignore[index]

    assert job(tmp_path, lambda _: adam(network()), monkeypatch, before=before) == [(5, "")] * 2
    said = capfd.readouterr().err
    assert said.count("the replicas differ slightly (") == 1


def test_what_cannot_be_looked_at_is_said_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Odd(torch.optim.SGD):
        calls = 0

        def state_dict(self) -> Any:
            self.calls += 1
            if self.calls == 1:
                raise RuntimeError("not now")
            return super().state_dict()

    def make(rank: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        kind = Odd if rank else torch.optim.SGD
        model = network()
        return model, kind(model.parameters(), lr=0.1)

    assert job(tmp_path, make, monkeypatch) == [(5, "")] * 2
    assert "the ranks were not compared: rank 1: RuntimeError: not now" in capfd.readouterr().err


# --- late ranks ----------------------------------------------------------------------------------


def late_board(size: int) -> list[MessageBoard]:
    store = SharedMemory()
    return [MessageBoard(store, rank=rank, world_size=size) for rank in range(size)]


def test_a_rank_that_is_late_holds_nobody_up_and_is_compared_later() -> None:
    boards = late_board(3)
    ranks = [
        comparison.RankComparison(board, State(model=network(seed=seed)), patience=0.01)
        for board, seed in zip(boards, (0, 0, 7), strict=True)
    ]
    began = time.monotonic()
    ranks[0].begin("2")
    ranks[1].begin("2")
    assert time.monotonic() - began < 5
    ranks[0].poll()  # rank 2 has not come yet
    ranks[2].begin("2")
    ranks[0].poll()  # asks it
    ranks[1].poll()
    ranks[2].poll()  # looks
    with pytest.raises(RanksDiffer, match="rank 2 has other values") as refused:
        ranks[0].poll()
    for other in ranks[1:]:
        with pytest.raises(RanksDiffer) as same:
            other.poll()
        assert str(same.value) == str(refused.value)
    ranks[1].poll()  # and no more


def test_one_rank_has_nobody_to_compare_with() -> None:
    alone = comparison.RankComparison(late_board(1)[0], State(model=network()))
    alone.begin("2")
    assert not alone.begun


def test_a_save_before_the_second_step_compares_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(rank: int) -> None:
        with Checkpoint(tmp_path, State(model=network(seed=rank))) as ckpt:
            ckpt.save()

    with pytest.raises(RanksDiffer):
        ThreadRanks(2, monkeypatch).run(work)
    assert not list(tmp_path.glob("step-*"))


def test_a_model_that_grows_on_one_rank_is_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(rank: int) -> tuple[int, str]:
        model, optimizer = adam(network())
        state = State(model=model, optimizer=optimizer)
        with Checkpoint(tmp_path, state, every_steps=1) as ckpt:
            try:
                while state.step < 100_000:
                    train(model, optimizer, 1.0)
                    ckpt.step()
                    if state.step == 4 and rank == 0:
                        model.add_module("head", nn.Linear(2, 1))
            except RanksDiffer as refused:
                return state.step, refused.sentence
        return state.step, ""

    first, second = ThreadRanks(2, monkeypatch).run(work)
    assert first == second
    assert 4 < first[0] < 100_000
    assert "model.head.weight: float32 [1, 2] on rank 0, absent on rank 1" in first[1]


# --- pure ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ((), (), 0.0), ((1.0,), (1.0,), 0.0), ((None, 1.0), (None, 1.0), 0.0),
        ((0.0,), (-0.0,), 0.0), ((None,), (1.0,), float("inf")), ((3.0, 4.0), (3.0, 4.5), 0.0925),
        ((1e-300,), (2e-300,), 0.5), ((1.0,), (1.0, 2.0), float("inf")),
    ],
)  # fmt: skip
def test_distance(one: Any, other: Any, expected: float) -> None:
    assert distance(one, other) == pytest.approx(expected, rel=1e-2)
    assert distance(other, one) == pytest.approx(expected, rel=1e-2)


NUMBERS = st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=8)


@given(NUMBERS, NUMBERS)
def test_distance_is_a_number_for_anything(one: list[Any], other: list[Any]) -> None:
    assert distance(one, one) == 0
    assert 0 <= distance(one, other) == distance(other, one)


def held(values: contents.Values) -> RankContents:
    return RankContents(structure=dict.fromkeys(values, "float32 [2]"), values=values, loose={})


def test_a_few_tiny_tensors_far_apart_are_rounding() -> None:
    values: contents.Values = {f"model.{i}": (1.0, 2.0) for i in range(10)}
    near: contents.Values = {f"model.{i}": (1.0, 2.0 + 1e-7) for i in range(10)}
    far: contents.Values = {"model.0": (1e-30, 0.0)}
    assert differences.difference(held(values), held(near | far), 1).kind == "slight"
    assert differences.difference(held(values), held(values | far), 1).kind == "values"


def test_the_verdict_names_all_ranks_of_a_kind_and_the_worst_kind() -> None:
    found = {
        1: RankDifference(kind="slight", parts=("model",), examples=("model.a by 1e-06",), count=1),
        2: RankDifference(kind="values", parts=("model",), examples=("model.a",), count=3),
    }
    said = differences.verdict(found, {1: [1, 3], 2: [2, 4, 5]})
    assert said.refusal.startswith("ranks 2,4-5 have other values than rank 0")
    assert "(model.a; 2 more)" in said.refusal
    assert differences.verdict({}, {}) == differences.RanksVerdict()


def test_contents_of_tensors_of_all_kinds() -> None:
    class Holder:
        def state_dict(self) -> dict[str, Any]:
            return {
                "turned": torch.arange(40.0).reshape(4, 10).t(),
                "complex": torch.ones(3, dtype=torch.complex64),
                "small": torch.ones(2, 2).to(torch.float8_e4m3fn),
                "none": torch.empty(0),
                "nan": torch.tensor([float("nan"), 1.0]),
                "flags": [torch.tensor([True, False]), {"deep": 3}],
                "text": "ignored",
                "meta": torch.empty(3, device="meta"),
            }

        def load_state_dict(self, _: Any) -> None: ...

    found = contents.contents(State(optimizer=Holder()))  # type: ignore[arg-type]
    assert len(found.values["optimizer.turned"]) == contents.SAMPLES
    assert found.values["optimizer.nan"] == (None, 1.0)
    assert found.values["optimizer.flags.0"] == (1.0, 0.0)
    assert found.values["optimizer.flags.1.deep"] == (3.0,)
    assert not {"optimizer.none", "optimizer.meta"} & found.values.keys()
    again = contents.contents(State(optimizer=copy.deepcopy(Holder())))  # type: ignore[arg-type]
    assert again.summary() == found.summary()
