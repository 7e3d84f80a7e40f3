from __future__ import annotations

from typing import Any

from holdfast.catalogue import by_slug
from holdfast.facts import MachineFacts, Smoke, SmokeRank, Unread
from holdfast.model import Status
from tests.faults.machines import a_machine, a_plan
from tests.faults.table import foresee_table, not_applicable, silent, skips, speaks


def env(nodes: int = 1, **values: str) -> MachineFacts:
    return a_machine(a_plan(min_nodes=nodes, max_nodes=nodes, environment=values))


def rank(number: int, **changes: Any) -> SmokeRank:
    values: dict[str, Any] = {
        "rank": number,
        "pid": 100 + number,
        "device": f"cuda:{number}",
        "master": "127.0.0.1:29600",
        "reached": "gloo",
        "error": "",
        "exit_code": 0,
    }
    return SmokeRank(**(values | changes))


def smoked(*ranks: SmokeRank, world: int = 2) -> MachineFacts:
    return a_machine(smoke=Smoke(world=world, ranks=ranks, stages=(), ladder=()))


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
        smoked(rank(0), rank(1, device="cuda:0")),
        saying=["ranks 0-1 share the device cuda:0", "[rank 1/2] pid 101 device cuda:0"],
    ),
    speaks(
        "error",
        smoked(rank(0), rank(1, master="10.0.0.5:29600")),
        saying=["do not agree on the master: 10.0.0.5:29600, 127.0.0.1:29600"],
    ),
    speaks("error", smoked(rank(0), rank(0)), saying=["rank 0 exists more than once"]),
    speaks("error", smoked(rank(0)), saying=["of 2 ranks, rank 1 is missing"]),
    speaks("error", smoked(rank(0), rank(1), rank(2)), saying=["rank 2 does not exist among 2"]),
    silent(env(RANK="1", WORLD_SIZE="4", TORCHELASTIC_RUN_ID="r1")),
    silent(env(RANK="1", WORLD_SIZE="4", SLURM_PROCID="1")),
    silent(env(nodes=2, WORLD_SIZE="8", LOCAL_WORLD_SIZE="4", NODE_RANK="1")),
    # Kubeflow: WORLD_SIZE counts pods, torchrun makes ranks of them
    silent(env(nodes=2, WORLD_SIZE="2")),
    # a rank of a larger job, asked without --nnodes
    silent(env(WORLD_SIZE="8", LOCAL_WORLD_SIZE="4", NODE_RANK="1")),
    not_applicable(env(), saying=["no rank is set"]),
    not_applicable(
        smoked(rank(0, device="cpu"), rank(1, device="cpu", master="")), saying=["no rank is set"]
    ),
    skips(a_machine(smoke=Unread(why="no torch")), saying=["no torch"]),
)


def test_ranks_on_one_cpu_are_no_fault() -> None:
    machine = smoked(rank(0, device="cpu"), rank(1, device="cpu", master=""))
    statuses = [f.status for f in by_slug("rank-assignment").look_at(machine) if f.applies]
    assert statuses == [Status.OK]
