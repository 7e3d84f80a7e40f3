"""`holdfast run --verify-replicas` on real ranks: a flipped bit, a NaN, and what is healthy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.jobs import ran

SICK = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 2))
model = DDP(net)
optimizer = torch.optim.AdamW(model.parameters())
torch.manual_seed(rank)  # other data on each rank: the statistics of BatchNorm differ
for step in range(1, 19):
    loss = model(torch.randn(6, 8)).square().mean()
    if rank == 1 and step == 15:
        loss = loss * float("nan")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 2 and step == 7:
        with torch.no_grad():
            net[2].weight.view(torch.int32)[1, 3] ^= 1
dist.destroy_process_group()
"""


@pytest.mark.long
def test_a_flipped_bit_and_a_nan_are_named_with_rank_and_step(tmp_path: Path) -> None:
    script = tmp_path / "sick.py"
    script.write_text(SICK)
    done = ran(tmp_path / "job", "--nproc-per-node", "3", "--verify-replicas", "5", str(script))
    assert done.process.returncode == 0, done.err
    assert ("notice", "replica-mismatch", [2]) in done.said(), done.err
    assert "the 2 ranks that agree at step 10: in 2.weight; at step 5 they were equal" in done.err
    assert ("notice", "nan-loss", [1]) in done.said(), done.err
    assert "is nan, first, at step 15, later on ranks 0,2" in done.err
    (record,) = done.records("replicas")
    assert (record["checks"], record["last_step"]) == (4, 15)
    assert record["host"] > 0
    assert "replicas: 4 checks, ranks 0-2 not equal at step 10; " in done.err


HEALTHY = """
import copy, sys
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()

def net(wide=8):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, wide), torch.nn.BatchNorm1d(wide),
                               torch.nn.Dropout(0.1), torch.nn.Linear(wide, 3))

def train(model, *optimizers, steps=4, before=lambda step: None, after=lambda: None):
    torch.manual_seed(10 + rank)
    for step in range(steps):
        before(step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        model(torch.randn(6, 8)).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        after()

plain = DDP(net())
train(plain, torch.optim.AdamW(plain.parameters()))

# Weights are clipped after the step, an average is kept, a layer is frozen.
inner = net()
inner[0].weight.requires_grad_(False)
clipped, average = DDP(inner), copy.deepcopy(inner)
def after():
    with torch.no_grad():
        for mine, kept in zip(inner.parameters(), average.parameters()):
            mine.clamp_(-0.05, 0.05)
            kept.lerp_(mine + rank, 0.1)
train(clipped, torch.optim.SGD((p for p in inner.parameters() if p.requires_grad), lr=0.1),
      after=after)

# Every rank updates a part, and sends it to the others when its own step is done.
zero = DDP(net(64))
train(zero, ZeroRedundancyOptimizer(zero.parameters(), torch.optim.Adam, lr=0.01))

# Two models that take turns, gradients of several batches.
one, other = DDP(net()), DDP(net())
first, second = (torch.optim.Adam(m.parameters()) for m in (one, other))
for step in range(4):
    for model, optimizer in ((one, first), (other, second)):
        optimizer.zero_grad()
        with model.no_sync():
            model(torch.randn(6, 8)).sum().backward()
        model(torch.randn(6, 8)).square().sum().backward()
        optimizer.step()

# Shards of two replicas each.
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
hybrid = net()
fully_shard(hybrid, mesh=mesh)
train(hybrid, torch.optim.AdamW(hybrid.parameters()))
dist.destroy_process_group()
"""


@pytest.mark.long
def test_healthy_jobs_of_many_kinds_get_no_notice(tmp_path: Path) -> None:
    script = tmp_path / "healthy.py"
    script.write_text(HEALTHY)
    done = ran(tmp_path / "job", "--nproc-per-node", "4", "--verify-replicas", "1", str(script))
    assert done.process.returncode == 0, done.err
    ours = ("replica-mismatch", "nan-loss")
    assert [slug for _, slug, _ in done.said() if slug in ours] == [], done.err
    assert "monitoring is disabled" not in done.err
    (record,) = done.records("replicas")
    assert record["checks"] > 15, done.err
    assert record["different"] == []
    assert record["refused"] == [], done.err


@pytest.mark.long
def test_without_replicas_it_says_so_and_trains(tmp_path: Path) -> None:
    script = tmp_path / "sharded.py"
    script.write_text(
        HEALTHY.split("plain = DDP", maxsplit=1)[0]
        + "model = net()\nfully_shard(model)\n"
        + "train(model, torch.optim.SGD(model.parameters(), lr=0.1))\n"
    )
    done = ran(tmp_path / "job", "--nproc-per-node", "2", "--verify-replicas", "1", str(script))
    assert done.process.returncode == 0, done.err
    assert "cannot be compared: FSDP shards are not replicas" in done.err
    assert "replicas were not compared: FSDP shards are not replicas" in done.err
