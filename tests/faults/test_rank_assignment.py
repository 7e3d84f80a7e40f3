from __future__ import annotations

import pytest

from holdfast.catalogue import by_slug
from holdfast.facts import MachineFacts, Unread
from holdfast.model import Status
from tests.faults.machines import a_machine, a_plan
from tests.faults.table import foresee_table, not_applicable, silent, skips, speaks
from tests.smoke.smokes import WORLD, done, up_to, verdict


def env(nodes: int = 1, **values: str) -> MachineFacts:
    return a_machine(a_plan(min_nodes=nodes, max_nodes=nodes, environment=values))


def smoked(*devices: str, last_master: str = "127.0.0.1:29500") -> MachineFacts:
    """What the smoke test saw when its ranks came up on these devices."""
    came = [done(rank, "start", device=device) for rank, device in enumerate(devices)]
    came[-1] = came[-1]._replace(master=last_master)
    return a_machine(
        smoke=verdict(
            [*came, *(r for r in up_to("gloo") if (r.kind, r.stage) != ("done", "start"))]
        )
    )


test_foresee = foresee_table(
    "rank-assignment",
    speaks("error", env(RANK="two", WORLD_SIZE="4"), saying=["RANK='two'", "unset RANK"]),
    speaks("error", env(RANK="-1", WORLD_SIZE="4"), saying=["not a whole number"]),
    speaks("error", env(WORLD_SIZE=""), saying=["WORLD_SIZE=''"]),
    speaks("error", env(RANK="4", WORLD_SIZE="4"), saying=["RANK=4 is not below WORLD_SIZE=4"]),
    speaks("error", env(LOCAL_RANK="8", LOCAL_WORLD_SIZE="8"), saying=["LOCAL_RANK=8"]),
    speaks("warning", env(RANK="0"), saying=["WORLD_SIZE is not"]),
    speaks("warning", env(nodes=2, NODE_RANK="2"), saying=["NODE_RANK=2", "2 nodes"]),
    speaks(
        "warning",
        env(nodes=2, WORLD_SIZE="4", LOCAL_WORLD_SIZE="4"),
        saying=["WORLD_SIZE=4 is not 2 nodes of LOCAL_WORLD_SIZE=4"],
    ),
    speaks("warning", env(WORLD_SIZE="2", LOCAL_WORLD_SIZE="4"), saying=["is below"]),
    speaks(
        "note",
        env(RANK="0", WORLD_SIZE="4"),
        saying=["RANK=0 of 4", "torchrun overrules it", "leftover"],
    ),
    speaks(
        "error",
        smoked("cuda:0", "cuda:0", "cuda:1", "cuda:2"),
        saying=["ranks 0-1 share cuda:0", "[rank 1/4] pid 101 device cuda:0"],
    ),
    speaks(
        "error",
        smoked("cpu", "cpu", "cpu", "cpu", last_master="10.0.0.5:29600"),
        saying=["do not agree on the master: 10.0.0.5:29600, 127.0.0.1:29500"],
    ),
    silent(env(RANK="1", WORLD_SIZE="4", TORCHELASTIC_RUN_ID="r1")),
    silent(env(RANK="1", WORLD_SIZE="4", SLURM_PROCID="1")),
    silent(env(nodes=2, WORLD_SIZE="8", LOCAL_WORLD_SIZE="4", NODE_RANK="1")),
    # Kubeflow: WORLD_SIZE counts pods, torchrun makes ranks of them
    silent(env(nodes=2, WORLD_SIZE="2")),
    # a rank of a larger job, asked without --nnodes
    silent(env(WORLD_SIZE="8", LOCAL_WORLD_SIZE="4", NODE_RANK="1")),
    not_applicable(env(), saying=["no rank is set"]),
    skips(a_machine(smoke=Unread(why="no torch")), saying=["no torch"]),
)


@pytest.mark.parametrize("device", ["cpu", "cuda:0 (shared)"])
def test_ranks_that_share_on_purpose_are_no_fault(device: str) -> None:
    machine = smoked(*[device] * WORLD)
    statuses = [f.status for f in by_slug("rank-assignment").look_at(machine) if f.applies]
    assert statuses == [Status.OK]
