from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest

from holdfast.analysis.machine import MachineFacts, Unread
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.scene.scene import RankView, StartedRank
from holdfast.catalogue import by_slug
from holdfast.findings import Status
from tests.analysis.logs.patterns.made import wreckage
from tests.check.smoke.smokes import WORLD, done, up_to, verdict
from tests.faults import between
from tests.faults.joiners import gave_up, joined, joiner, late, starting
from tests.faults.machines import a_machine, a_plan
from tests.faults.made_nodes import on_node, replace, some_nodes
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
    silent,
    skips,
    speaks,
)
from tests.run.scenes import NOW, a_beat, a_rank, a_scene, an_activity, ended, words


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


test_check = check_table(
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
        saying=["RANK=0 and WORLD_SIZE=4 set", "torchrun overrides it", "left over"],
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
    statuses = [f.status for f in by_slug("rank-assignment").ask_check(machine) if f.applies]
    assert statuses == [Status.OK]


OUT_OF_RANGE = "[enforce fail at gloo/gloo/context.cc:23] rank < size. 5 vs 2"
BOTH_ZERO = [joiner(0), joiner(1, rank=0)]


def four(*numbers: int, world: int = 4, **claim: Any) -> list[RankView]:
    return [
        joiner(given, rank=number, world_size=world, given_world_size=4, **claim)
        for given, number in enumerate(numbers)
    ]


def trained(view: RankView) -> RankView:
    assert view.beat is not None
    return msgspec.structs.replace(view, beat=msgspec.structs.replace(view.beat, steps=3))


LOST = words("RuntimeError", "pair.cc:537] Read error [127.0.0.1]:1: reset by peer", at=NOW - 1)


def spawning(rank: int, store: str, *, failed: bool = True, steps: int = 3) -> RankView:
    started = tuple(StartedRank(store=store, rank=number) for number in (0, 1))
    view = ended(rank, 1, said=LOST) if failed else a_rank(rank, beat=a_beat(steps=steps))
    return msgspec.structs.replace(view, started=started)


test_run = run_table(
    "rank-assignment",
    # whatever error such a script ends with
    notices(
        a_scene([spawning(0, "127.0.0.1:29611"), spawning(1, "127.0.0.1:29611")]),
        ranks=[0, 1],
        certain=True,
        saying=[
            "ranks 0-1 each started a rank 0 at 127.0.0.1:29611: this script starts its own ranks",
            "run it with --nproc-per-node 1, or without a launcher",
        ],
    ),
    overlooks(a_scene([spawning(0, "127.0.0.1:29611"), spawning(1, "127.0.0.1:29612")])),
    overlooks(a_scene([spawning(r, "127.0.0.1:29611", failed=False) for r in (0, 1)])),
    # it hangs: named, so that it is known once it is stopped
    notices(
        a_scene([spawning(r, "127.0.0.1:29611", failed=False, steps=0) for r in (0, 1)]),
        ranks=[0, 1],
        certain=False,
        saying=["ranks 0-1 each started a rank 0 at 127.0.0.1:29611: this script starts its own"],
    ),
    notices(
        starting(*BOTH_ZERO),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=[
            "rank 1 (pid 4001) claims to be 0 of 2 and was given 1 of 2",
            "number 0 is claimed more than once, no rank claims 1",
            "rank 0 cannot join without it",
            "without rank= and world_size=",
            "rank 0 claims rank 0 of 2 at 127.0.0.1:29400",
        ],
    ),
    # unequal world sizes: the one that says what it was given is not to blame
    notices(
        starting(joiner(0), joiner(1, world_size=3)),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=["world sizes 2 and 3 do not agree"],
    ),
    notices(
        starting(*four(0, 1, 2, 3)[:3], joiner(3, rank=0, world_size=1, given_world_size=4)),
        ranks=[3],
        victims=[0, 1, 2],
        certain=True,
        saying=["world sizes 1 and 4 do not agree", "rank 3 (pid 4003) claims to be 0 of 1"],
    ),
    notices(
        starting(joiner(0), gave_up(1, "RuntimeError", OUT_OF_RANGE, rank=5)),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=["5 is out of range for world size 2", "rank < size"],
    ),
    # it timed out waiting for a number that no rank has
    notices(
        starting(
            gave_up(0, "DistStoreError", "wait timeout after 2000ms, keys: /default_pg/0/1"),
            joiner(1, rank=0),
        ),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=["number 0 is claimed more than once"],
    ),
    # ranks that are not visible here might be 2 and 3
    notices(
        starting(joiner(0, world_size=4), joiner(1, world_size=4)),
        ranks=[0, 1],
        victims=[],
        certain=False,
        saying=["no rank claims 2-3 of 4, although all ranks have started to join"],
    ),
    # without stacks the claims may be old
    notices(
        starting(joiner(0), joiner(1, rank=0, view={"stack": None})),
        ranks=[1],
        certain=False,
        saying=["more than once"],
    ),
    # NCCL: init_process_group returns before anybody has met
    notices(
        starting(joined(0), joined(1, rank=0)), ranks=[1], certain=False, saying=["more than once"]
    ),
    notices(
        starting(*four(0, 1, 1, 3, own_store=True)),
        ranks=[2],
        certain=False,
        saying=["number 1 is claimed more than once, no rank claims 2"],
    ),
    overlooks(starting(joiner(0), joiner(1))),
    overlooks(starting(*four(3, 2, 0, 1))),  # a permutation is the script's affair
    overlooks(starting(*four(1, 0, 2, 3)[:3], late(3))),
    overlooks(starting(*four(0, 1, 0, 1, world=2, own_store=True))),  # two groups by prefix
    overlooks(starting(*four(0, 1, 0, 1, world=2, own_store=True)[:3], late(3))),
    overlooks(
        starting(*four(0, 1, world=2), *(joiner(r, rank=r - 2, store="a:1") for r in (2, 3)))
    ),
    overlooks(starting(*four(0, 0, 0, 0, world=1))),  # each alone
    overlooks(starting(joiner(0, rank=-1, world_size=-1), joiner(1))),
    overlooks(starting(joiner(0), joiner(1, rank=0, given_rank=-1))),
    overlooks(starting(*map(trained, BOTH_ZERO))),
    overlooks(starting(a_rank(0), a_rank(1, beat=a_beat(steps=0)))),
    # another end, or a rank that is stopped, explains why they wait
    overlooks(starting(*BOTH_ZERO, ended(2, -signal.SIGKILL))),
    overlooks(starting(*BOTH_ZERO, ended(2, 1, said=words("ValueError", "bad", at=NOW)))),
    overlooks(starting(*BOTH_ZERO, late(2, activity=an_activity(state="T")))),
)


# --- explain --------------------------------------------------------------------------

test_explain = explain_table(
    "rank-assignment",
    recognises(
        wreckage(
            "RuntimeError: Timed out initializing process group in store based barrier on "
            "rank: 2, for key: store_based_barrier_key:1 (world_size=2, worker_count=4)"
        ),
        sure=0.7,
        what="4 processes for world size 2",
        saying=["one of them as rank 2"],
    ),
    passes_over(
        wreckage(
            "RuntimeError: Timed out initializing process group in store based barrier on "
            "rank: 0, for key: store_based_barrier_key:1 (world_size=2, worker_count=1)"
        )
    ),
    recognises(
        wreckage(
            "[rank0]: bootstrap.cc:348 NCCL WARN Bootstrap Root : rank 1 of 4 ranks has already "
            "checked in"
        ),
        sure=0.9,
        what="rank 1 joined twice",  # rank 0 is only the one who noticed
        saying=["two processes joined as rank 1 of 4"],
    ),
    recognises(
        wreckage(
            "[rank0]: bootstrap.cc:190 NCCL WARN Bootstrap Root : mismatch in rank count from "
            "procs 4 : 8"
        ),
        sure=0.9,
        what="world sizes 4 and 8",
        saying=["do not agree on the world size: 4 and 8"],
    ),
    recognises(
        wreckage("[rank0]: ValueError: Invalid rank 4, rank should be in the interval [0, 3]"),
        sure=0.75,
        what="rank 4",
        saying=["a rank that is out of range"],
    ),
    passes_over(wreckage("[rank0]: RuntimeError: Connection refused")),
)


# --- between nodes -------------------------------------------------------------------------------


def numbered(*ranks: int | None, **plan: Any) -> NodesFacts:
    facts = some_nodes(len(ranks), **plan)
    for node, rank in zip(facts.nodes, ranks, strict=True):
        facts = on_node(facts, node.name, plan=replace(node.facts.plan, node_rank=rank))
    return facts


test_check_nodes = between.table(
    "rank-assignment",
    between.speaks(
        "error",
        numbered(0, 1, 1),
        saying=[
            "node-b and node-c have the same node rank 1",
            "node-c: node rank 1",
            "SLURM_NODEID",
        ],
    ),
    between.silent(numbered(0, 1, 2)),
    between.silent(numbered(0, None, 1)),
    between.not_applicable(numbered(None, None), saying=["no node rank"]),
    between.not_applicable(numbered(0, 0, rdzv_backend="c10d"), saying=["c10d"]),
)
