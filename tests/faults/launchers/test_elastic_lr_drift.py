from __future__ import annotations

from tests.analysis.source.launches import launched
from tests.analysis.source.made_sources import python
from tests.faults.table import flags, leaves, lint_table

SCALED = """
import os
import torch
import torch.distributed as dist

def main(args, model):
    world = dist.get_world_size()
    lr = args.base_lr * RANKS
    return torch.optim.SGD(model.parameters(), lr=lr)
"""
HOROVOD = """
import torch
import horovod.torch as hvd

hvd.init()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())

@hvd.elastic.run
def train(state):
    pass

state = hvd.elastic.TorchState(model, optimizer)
"""


def scaled(ranks: str) -> str:
    return SCALED.replace("RANKS", ranks)


ELASTIC = launched("torchrun", nnodes="1:4")

test_lint = lint_table(
    "elastic-lr-drift",
    flags(
        "warning",
        python(
            "import horovod.torch as hvd\nlr = 0.1 * hvd.size()\n"
            "@hvd.elastic.run\ndef train(state):\n    step(state, lr)"
        ),
        lines=[2],
        saying=["`@hvd.elastic.run`"],
    ),
    flags(  # nothing says that it is elastic
        "note",
        python(
            "import horovod.torch as hvd\nlr = 0.1 * hvd.size()\n"
            "@timed.run\ndef train(state):\n    step(state, lr)"
        ),
        lines=[2],
        saying=["nothing here says that the number may change"],
    ),
    flags(
        "warning",
        python(
            "import torch.distributed as dist\n"
            "from torch.distributed.launcher.api import LaunchConfig\n"
            "config = LaunchConfig(min_nodes=1, max_nodes=3, nproc_per_node=8)\n"
            "lr = 0.1 * dist.get_world_size()"
        ),
        lines=[4],
        saying=["LaunchConfig(min_nodes=1, max_nodes=3)"],
    ),
    flags(
        "warning",
        python(scaled("world"), started_by=ELASTIC),
        lines=[7],
        saying=["args.base_lr * world", "torchrun --nnodes=1:4", "decide"],
    ),
    flags(
        "warning",
        python(scaled("int(os.environ['WORLD_SIZE']) / 8"), started_by=ELASTIC),
        lines=[7],
        saying=["number of ranks at start, which may change"],
    ),
    flags(
        "warning",
        python(scaled("dist.get_world_size()"), started_by=launched("horovodrun", min_np="4")),
        lines=[7],
        saying=["horovodrun --min-np 4"],
    ),
    flags("warning", python(HOROVOD), lines=[5], saying=["0.01 * hvd.size()"]),
    flags("note", python(scaled("world")), lines=[7], saying=["log the rate"]),
    leaves(python(scaled("world"), started_by=launched("torchrun", nnodes="4"))),
    leaves(python(scaled("world"), started_by=launched("torchrun", nnodes="4:4"))),
    leaves(python(scaled("args.max_ranks"), started_by=ELASTIC)),
    leaves(
        python(
            "import torch.distributed as dist\nglobal_batch = 8 * dist.get_world_size()\n",
            started_by=ELASTIC,
        )
    ),
    leaves(python(HOROVOD + "state.register_reset_callbacks([rescale])\n")),
)
