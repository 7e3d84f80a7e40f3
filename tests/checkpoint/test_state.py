"""`State`: what was captured and restored continues exactly as if nothing had happened."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.optim import lr_scheduler

from holdfast.checkpoint import object_state
from holdfast.checkpoint.staging import StagingBuffer
from holdfast.checkpoint.state import CapturedState, State, saved_sharded, saved_structure, versions
from holdfast.checkpoint.tree import DamagedTreeError
from holdfast.errors import ConfigError


def write(captured: CapturedState, rank: int, folder: Path) -> str:
    buffer = StagingBuffer()
    for piece in buffer.stage(captured.tensors, captured.text).pieces(rank, buffer.fd):
        (folder / piece.name).write_bytes(os.pread(piece.fd, piece.size, piece.offset))
    buffer.close()
    return str(folder)


class Run:
    """A training with everything in it that a resume could lose."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        self.model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5),
                                   nn.Linear(8, 1))  # fmt: skip
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.scheduler = lr_scheduler.MultiStepLR(self.optimizer, [2, 4], gamma=0.5)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        self.noise = torch.Generator().manual_seed(seed)
        self.state = State(
            model=self.model, optimizer=self.optimizer, scheduler=self.scheduler,
            scaler=self.scaler, noise=self.noise, best=1.0, history=torch.zeros(2),
        )  # fmt: skip

    def step(self) -> float:
        batch = torch.randn(6, 4) + torch.rand(1, generator=self.noise) + random.random()
        loss = self.model(batch).pow(2).mean()
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.state.step += 1
        self.state.extras["best"] = min(self.state.extras["best"], loss.item())
        return float(loss.detach())


def test_a_resumed_run_continues_bit_for_bit(tmp_path: Path) -> None:
    run = Run(seed=1)
    for _ in range(3):
        run.step()
    run.state.epoch = 2
    folder = write(run.state.capture(0), 0, tmp_path)
    expected = [run.step() for _ in range(4)]
    again = Run(seed=2)
    again.step()
    assert again.state.restore(folder, 0, saved_world=1) == []
    for file in tmp_path.iterdir():
        file.unlink()  # nothing that was restored may still be read from the files
    assert (again.state.step, again.state.epoch) == (3, 2)
    assert [again.step() for _ in range(4)] == expected
    assert again.state.extras["best"] == run.state.extras["best"]
    for one, other in zip(run.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(one, other)


SCHEDULERS: list[Callable[[Any], Any]] = [
    lambda o: lr_scheduler.StepLR(o, 2),
    lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=9),
    lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
    lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o), lr_scheduler.ExponentialLR(o, 0.5)], milestones=[2]
    ),
]


@pytest.mark.parametrize("make", SCHEDULERS, ids=range(len(SCHEDULERS)))
def test_schedulers_continue(make: Callable[[Any], Any], tmp_path: Path) -> None:
    def run() -> tuple[Any, State, Callable[[], float]]:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
        scheduler = make(optimizer)

        def step() -> float:
            optimizer.step()
            scheduler.step()
            return float(optimizer.param_groups[0]["lr"])

        return optimizer, State(optimizer=optimizer, scheduler=scheduler), step

    _, state, step = run()
    for _ in range(3):
        step()
    folder = write(state.capture(0), 0, tmp_path)
    _, other, other_step = run()
    other.restore(folder, 0, 1)
    assert [other_step() for _ in range(4)] == [step() for _ in range(4)]


# --- wrappers ----------------------------------------------------------------------------------


def a_model() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))


def wrapped(model: nn.Module) -> nn.Module:
    """A layer compiled by itself inside a model that is compiled as a whole."""
    model[0] = torch.compile(model[0], backend="eager")  # type: ignore[operator, index]
    return torch.compile(model, backend="eager")  # type: ignore[return-value]


@pytest.fixture
def group_of_one() -> Any:
    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("group_of_one")
def test_no_wrapper_changes_a_name(tmp_path: Path) -> None:
    parallel = nn.parallel.DistributedDataParallel(wrapped(a_model()))
    plain = a_model()
    assert list(object_state.module_state(parallel)) == list(plain.state_dict())
    assert State(model=parallel).structure() == State(model=plain).structure()
    folder = write(State(model=parallel).capture(0), 0, tmp_path)
    State(model=plain).restore(folder, 0, 1)
    back = nn.parallel.DistributedDataParallel(wrapped(a_model()))
    folder = write(State(model=plain).capture(0), 0, tmp_path)
    State(model=back).restore(folder, 0, 1)
    assert all(map(torch.equal, parallel.parameters(), back.parameters()))


@pytest.mark.usefixtures("group_of_one")
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_an_optimizer_that_is_split_over_ranks_is_refused() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer  # noqa: PLC0415 - slow to import

    split = ZeroRedundancyOptimizer(a_model().parameters(), torch.optim.SGD, lr=0.1)
    with pytest.raises(ConfigError, match="ZeroRedundancyOptimizer") as refused:
        State(optimizer=split)
    assert 'per_rank=("optimizer",)' in refused.value.hint
    State(optimizer=split, per_rank=["optimizer"])


# --- what must be equal ------------------------------------------------------------------------


def test_the_fingerprint_holds_from_before_the_first_step() -> None:
    run = Run(seed=1)
    before = run.state.capture(0).structure
    run.step()
    assert (
        run.state.capture(0).structure == before == object_state.fingerprint(run.state.structure())
    )
    assert Run(seed=2).state.capture(0).structure == before


def test_differences_are_named(tmp_path: Path) -> None:
    one, other = State(model=nn.Linear(3, 4)), State(model=nn.Linear(3, 5).half())
    folder = write(one.capture(0), 0, tmp_path)
    assert one.capture(0).structure != other.capture(0).structure
    assert object_state.first_differences(saved_structure(folder), other.structure(), most=1) == (
        "model.weight: float32 [4, 3] then, float16 [5, 3] now; 1 more"
    )
    with pytest.raises(ConfigError, match="model did not take its saved state"):
        other.restore(folder, 0, 1)


def test_the_optimizer_counts_too() -> None:
    model = nn.Linear(1, 1)
    kinds = [torch.optim.SGD(model.parameters(), lr=1), torch.optim.Adam(model.parameters()),
             torch.optim.SGD([model.weight], lr=1)]  # fmt: skip
    assert len({State(optimizer=kind).capture(0).structure for kind in kinds}) == 3


# --- ranks -------------------------------------------------------------------------------------


class Place:
    """A data position."""

    def __init__(self, at: int, scope: str = "per-rank") -> None:
        self.at, self.data_scope = at, scope

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def saved_by_two_ranks(folder: Path, scope: str = "per-rank") -> str:
    for rank in range(2):
        torch.manual_seed(rank)
        state = State(model=nn.Linear(1, 1), data=Place(10 + rank, scope), loader=Place(20 + rank),
                      common=rank, per_rank=["loader"])  # fmt: skip
        write(state.capture(rank), rank, folder)
    return str(folder)


@pytest.mark.parametrize(
    ("rank", "scope", "data", "loader"),
    [(0, "per-rank", 10, 20), (1, "per-rank", 11, 21), (2, "per-rank", 0, 0), (2, "global", 10, 0)],
)
def test_each_rank_gets_its_own(
    rank: int, scope: str, data: int, loader: int, tmp_path: Path
) -> None:
    folder = saved_by_two_ranks(tmp_path, scope)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["rank-0.json", "rank-0.safetensors", "rank-1.json"]
    state = State(model=nn.Linear(1, 1), data=Place(0, scope), loader=Place(0), common=9,
                  per_rank=["loader"])  # fmt: skip
    notes = state.restore(folder, rank, saved_world=2)
    assert (state.data.at, state._things["loader"].at) == (data, loader)
    assert state.extras["common"] == 0  # rank 0's, as for all that is shared
    assert bool(notes) == (rank == 2)
    if rank < 2:
        numbers = torch.rand(2)
        torch.manual_seed(rank)
        nn.Linear(1, 1)
        assert torch.equal(numbers, torch.rand(2))


def test_a_new_rank_is_reported(tmp_path: Path) -> None:
    folder = saved_by_two_ranks(tmp_path)
    state = State(data=Place(0), noise=torch.Generator())
    assert state.restore(folder, 5, saved_world=2) == [
        "rank 5 is new: its random numbers are derived from those of rank 0",
        "data is not in the checkpoint of rank 5: it starts fresh",
    ]


@pytest.mark.parametrize(
    ("data", "scope"), [(None, "unknown"), (Place(1), "per-rank"), (Place(1, "global"), "global")]
)
def test_the_scope_of_the_data_position(data: Any, scope: str) -> None:
    assert State(data=data).data_scope == scope


# --- refusals and damage -------------------------------------------------------------------------


class OnlySaves:
    def state_dict(self) -> dict[str, int]:
        return {}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"ema": OnlySaves()}, "State(ema=…) is a OnlySaves without load_state_dict()"),
        ({"scheduler": 3}, "State(scheduler=…) is a int without state_dict()"),
        ({"foo": object()}, 'state["extras"]["foo"] is a object: give it state_dict()'),
        (
            {"per_rank": ["loder"], "loader": 1},
            "per_rank: unknown value 'loder' (choose from loader)",
        ),
        ({"per_rank": "model"}, "per_rank: unknown value 'model' (choose from nothing)"),
        (
            {"model": nn.ParameterList([nn.Parameter(torch.empty(0))])},
            "State(model=…) has only empty parameters: their values are not in the module",
        ),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        State(**given)
    assert sentence in refused.value.sentence


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rank-0.json", b"{"), ("rank-0.json", b"[]"), ("rank-0.json", b"{}"),
        ("rank-0.json", b'{"step": "x", "epoch": 0, "shared": {}, "own": {}}'),
        ("rank-0.json", b'{"step": 0, "epoch": 0, "shared": [], "own": 3}'),
        ("rank-0.safetensors", b""), ("rank-0.safetensors", b"\0" * 8),
        ("rank-0.safetensors", b"\xff" * 64),
    ],
)  # fmt: skip
def test_damage_is_one_clear_error_and_changes_nothing(
    name: str, content: bytes, tmp_path: Path
) -> None:
    run = Run(seed=1)
    run.step()
    folder = write(run.state.capture(0), 0, tmp_path)
    (tmp_path / name).write_bytes(content)
    before = [parameter.clone() for parameter in run.model.parameters()]
    with pytest.raises(DamagedTreeError):
        run.state.restore(folder, 0, 1)
    assert all(map(torch.equal, before, run.model.parameters()))
    assert run.state.step == 1


def test_a_part_for_sharded_state_travels_along(tmp_path: Path) -> None:
    folder = write(State().capture(3, sharded={"index": [1, 2]}), 3, tmp_path)
    assert saved_sharded(folder, 3) == {"index": [1, 2]}


def test_versions() -> None:
    assert {"holdfast", "torch", "python", "cuda"} <= versions().keys()
