"""Sums keep their bits over a resume: DDP's buckets lie as they lay when the state was saved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from holdfast.checkpoint import ddp_buckets


@pytest.fixture
def a_group() -> Iterator[None]:
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def a_model(*, static_graph: bool = False) -> DistributedDataParallel:
    layers = [nn.Linear(8, 512), nn.Linear(512, 600), nn.Linear(600, 1)]
    return DistributedDataParallel(
        nn.Sequential(*layers), bucket_cap_mb=1, static_graph=static_graph
    )


def trained(model: DistributedDataParallel, steps: int = 4) -> DistributedDataParallel:
    for _ in range(steps):
        model(torch.ones(2, 8)).sum().backward()
    return model


def sizes(model: DistributedDataParallel, which: str) -> str:
    return str(model._get_ddp_logging_data()[which])  # type: ignore[no-untyped-call]


@pytest.mark.usefixtures("a_group")
def test_the_layout_is_known_once_the_gradients_have_come() -> None:
    model = a_model()
    assert ddp_buckets.of(model) == ()
    assert ddp_buckets.of(trained(model)) == ((5, 4, 3, 2), (1, 0))
    assert ddp_buckets.of(nn.Sequential(model)) == ((5, 4, 3, 2), (1, 0))


@pytest.mark.usefixtures("a_group")
def test_a_new_process_begins_with_the_saved_layout() -> None:
    before = trained(a_model())
    model = a_model()
    assert sizes(model, "bucket_sizes") != sizes(before, "rebuilt_bucket_sizes")
    assert ddp_buckets.impose(model, ddp_buckets.of(before))
    assert sizes(model, "bucket_sizes") == sizes(before, "rebuilt_bucket_sizes")
    assert ddp_buckets.of(trained(model)) == ddp_buckets.of(before)
    grads = [p.grad for p in model.parameters()]
    assert all(grad is not None and grad.abs().sum() > 0 for grad in grads)


@pytest.mark.usefixtures("a_group")
@pytest.mark.parametrize(
    "saved",
    [[], [[0, 1]], [[0, 1, 2, 3, 4, 5, 6]], [[0, 0, 1, 2, 3, 4]]],
    ids=["none", "too few", "too many", "twice"],
)
def test_a_layout_of_another_model_is_left_alone(saved: list[list[int]]) -> None:
    assert not ddp_buckets.impose(a_model(), saved)


@pytest.mark.usefixtures("a_group")
def test_a_reducer_with_hooks_is_left_alone() -> None:
    model = a_model()
    model.register_comm_hook(None, allreduce_hook)
    assert not ddp_buckets.impose(model, ((5, 4, 3, 2), (1, 0)))
    assert not ddp_buckets.impose(a_model(static_graph=True), ((5, 4, 3, 2), (1, 0)))


def test_without_ddp_there_is_nothing_to_do() -> None:
    assert ddp_buckets.of(nn.Linear(2, 2)) == ddp_buckets.of(None) == ()
    assert not ddp_buckets.impose(nn.Linear(2, 2), [[0, 1]])
