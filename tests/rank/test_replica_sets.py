"""Which parameters are replicas: real torch with a group that only pretends to communicate."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from holdfast.rank import delivery

SCRIPT = """
import json
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.testing._internal.distributed.fake_pg import FakeStore
from holdfast.rank import heartbeat_page, own_page, replica_check, torch_hooks
from holdfast.rank.replica_check import ReplicaCheck
from holdfast.rank.replica_sets import ReplicaSets

dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)

def net():
    torch.manual_seed(0)
    linear, norm = torch.nn.Linear, torch.nn.BatchNorm1d
    return torch.nn.Sequential(linear(4, 8), norm(8), linear(8, 2))

def found(*models):
    steps = torch.optim.SGD([p for model in models for p in model.parameters()] or [ema.weight])
    sets, why = ReplicaSets(torch).of(steps)
    told = sorted((list(one.ranks), sorted(name for name, _ in one.tensors)) for one in sets)
    return told or why

ema = torch.nn.Linear(1, 1)
seen = {"none": found()}

frozen = net()
frozen[0].bias.requires_grad_(False)
DDP._set_params_and_buffers_to_ignore_for_model(frozen, ["2.bias"])
model = DDP(frozen)
seen["ddp"] = found(model)
seen["other optimizer"] = found()
second = DDP(net())  # two models alike, e.g. two critics
seen["two"] = [len(names) for _, names in found(model, second)]
del second

def halved(state, bucket):
    pass

model.register_comm_hook(None, halved)
seen["hook"] = found(model)
del model

alone = DDP(net(), process_group=dist.new_group([1]))
seen["one rank"] = found(alone)
del alone

fully_shard(sharded := net())
seen["fsdp"] = found(sharded)
del sharded
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
fully_shard(hybrid := net(), mesh=mesh)
seen["hsdp"] = [(ranks, len(names)) for ranks, names in found(hybrid)]
del hybrid

old = FSDP(net(), sharding_strategy=ShardingStrategy.NO_SHARD, device_id=torch.device("cpu"))
seen["no shard"] = [ranks for ranks, _ in found(old)]
del old
old = FSDP(net(), sharding_strategy=ShardingStrategy.FULL_SHARD, device_id=torch.device("cpu"))
seen["full shard"] = found(old)
del old
old = FSDP(net(), sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh,
           device_id=torch.device("cpu"))
seen["hybrid shard"] = [ranks for ranks, _ in found(old)]
del old

# --- when a digest is taken ---------------------------------------------------------------------
own_page.page = heartbeat_page.HeartbeatPage(memoryview(bytearray(4096)))
torch_hooks._count_steps()
replica_check.follow(torch, 2)
model = DDP(net())
optimizer, probe = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, ema))
for step in range(5):
    for parameter in model.parameters():  # a pretended all-reduce has no result
        parameter.grad = torch.ones_like(parameter)
    probe.step()  # on this rank only: its steps are not those of the model
    probe.step()
    optimizer.step()
with torch.no_grad():
    model.module[2].bias.view(torch.int32)[0] ^= 1
optimizer.step()
optimizer.step()
replica_check.finish()
print(json.dumps(seen))
"""
ALL = ["0.bias", "0.weight", "1.bias", "1.weight", "2.bias", "2.weight"]
SHARDS = "FSDP shards are not replicas: each rank holds other parameters"


def test_what_torch_keeps_equal(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, delivery.EVENTS: str(file)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    everybody = [0, 1, 2, 3]
    assert json.loads(done.stdout) == {
        "none": "no DistributedDataParallel or HSDP module of torch is used",
        "other optimizer": "",
        "ddp": [[everybody, ["0.weight", "1.bias", "1.weight", "2.weight"]]],
        "two": [10],
        "hook": "the communication hook halved may let replicas differ",
        "one rank": "",
        "fsdp": SHARDS,
        "hsdp": [[[1, 3], 6]],
        "no shard": [everybody],
        "full shard": SHARDS,
        "hybrid shard": [[1, 3]],
    }
    told = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(one["kind"], one["step"]) for one in told] == [
        ("replica-digest", step) for step in (0, 2, 4, 6)
    ]
    assert [one["ranks"] for one in told] == [everybody, [], [], []], "said once"
    assert told[0]["parts"] == ALL
    assert {one["number"] for one in told} == {1}
    before, after = told[2]["digest"], told[3]["digest"]
    parts = [n // 8 for n, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert ALL.index("2.bias") in parts
