from __future__ import annotations

import msgspec

from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import Unread
from holdfast.analysis.machine.nccl_diagnostics import read_report
from holdfast.analysis.nodes import NodesFacts
from holdfast.catalogue import by_slug
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.machines import settings
from tests.faults.made_nodes import on_all, on_node, some_nodes
from tests.faults.made_smokes import smoked
from tests.faults.table import explain_table, passes_over, recognises

TIMED_OUT = (
    "[rank0]: [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, "
    "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)


def nodes(*settings: tuple[str, str, str], trouble: str = TIMED_OUT) -> Wreckage:
    """(host, variable, value) as NCCL shows them on each host."""
    made = wreckage(*(f"NCCL INFO {name} set by environment to {v}" for _, name, v in settings))
    placed = [
        msgspec.structs.replace(one, line=msgspec.structs.replace(one.line, host=host))
        for one, (host, _, _) in zip(made.sightings, settings, strict=True)
    ]
    more = wreckage(trouble).sightings if trouble else ()
    return msgspec.structs.replace(made, sightings=(*placed, *more))


TWO = (("node-a", "NCCL_PROTO", "LL"), ("node-b", "NCCL_PROTO", "Simple"))

test_explain = explain_table(
    "env-mismatch-nodes",
    recognises(
        nodes(*TWO), sure=0.55, what="NCCL_PROTO", saying=["LL on node-a", "Simple on node-b"]
    ),
    recognises(
        nodes(("node-a", "NCCL_ALGO", "Ring"), ("node-b", "NCCL_PROTO", "LL")),
        sure=0.3,
        what="NCCL_ALGO",
        saying=["not on node-b"],
    ),
    passes_over(nodes(*TWO, trouble="")),  # a job that runs may differ as it likes
    passes_over(nodes(*TWO, trouble="[rank0]: KeyError: 'LOCAL_RANK'")),  # another cause
    passes_over(  # machines have other names for their cards
        nodes(("node-a", "NCCL_SOCKET_IFNAME", "eth0"), ("node-b", "NCCL_SOCKET_IFNAME", "ens3"))
    ),
    passes_over(nodes(("node-a", "NCCL_PROTO", "LL"), ("node-b", "NCCL_PROTO", "LL"))),
)


def test_the_odd_one_of_three_is_named() -> None:
    (face,) = by_slug("env-mismatch-nodes").explain_faces
    found = face(nodes(*TWO, ("node-c", "NCCL_PROTO", "Simple")))
    assert found is not None
    assert found.culprit is not None
    assert found.culprit.host == "node-a"


# --- between nodes -------------------------------------------------------------------------------

FOUR = on_all(some_nodes(4), lambda _: {"settings": settings(NCCL_ALGO="Tree", NCCL_DEBUG="INFO")})


def with_settings(name: str, facts: NodesFacts = FOUR, **values: str) -> NodesFacts:
    return on_node(facts, name, settings=settings(**{"NCCL_ALGO": "Tree", **values}))


NCCL_SAID = (
    "node01:4242 NCCL DIAG [INFO] NCCL environment: mismatch across 16 ranks in comm 0x5fa31c27 "
    "for NCCL_BUFFSIZE"
)

test_check_nodes = between.table(
    "env-mismatch-nodes",
    between.speaks(
        "note",
        smoked(4, diagnostics=read_report([NCCL_SAID])),
        saying=["NCCL's diagnostics: mismatch across 16 ranks", "for NCCL_BUFFSIZE"],
    ),
    between.silent(smoked(4)),
    between.speaks(
        "error",
        with_settings("node-c", NCCL_ALGO="Ring"),
        saying=[
            "node-c has other settings: NCCL_ALGO is Ring (Tree elsewhere)",
            "node-c: NCCL_ALGO=Ring",
            "another algorithm",
            "`export NCCL_ALGO=Tree` on node-c",
        ],
        hosts=["node-c"],
    ),
    between.speaks(
        "error",
        on_node(FOUR, "node-c", settings=()),
        saying=["NCCL_ALGO is not set (Tree elsewhere)", "node-c: NCCL_ALGO is not set"],
        hosts=["node-c"],
    ),
    between.speaks(
        "warning",
        with_settings("node-c", NCCL_P2P_LEVEL="SYS", TORCH_NCCL_BLOCKING_WAIT="1"),
        saying=["NCCL_P2P_LEVEL is SYS (not set elsewhere)", "TORCH_NCCL_BLOCKING_WAIT is 1"],
        hosts=["node-c"],
    ),
    between.speaks(
        "warning",
        on_node(
            FOUR,
            "node-c",
            settings=(
                *settings(NCCL_ALGO="Tree"),
                *settings("/etc/nccl.conf:3", NCCL_P2P_LEVEL="SYS"),
            ),
        ),
        saying=["change the line at /etc/nccl.conf:3 on node-c"],
    ),
    between.speaks(  # two nodes each: none is the odd one
        "error",
        with_settings("node-c", with_settings("node-d", NCCL_ALGO="Ring"), NCCL_ALGO="Ring"),
        saying=["NCCL_ALGO is Ring on node-c and node-d, Tree on node-a and node-b"],
        hosts=[""],
    ),
    between.speaks(
        "error",
        with_settings("node-c", TORCH_DISTRIBUTED_DEBUG="DETAIL"),
        saying=["adds collectives of its own"],
    ),
    between.speaks(
        "error",
        on_node(some_nodes(3), "node-a", settings=settings(MASTER_PORT="29501")),
        saying=["MASTER_PORT is 29501 (29500 elsewhere)", "another port"],
    ),
    between.speaks(  # two odd nodes, each in its own way
        "error",
        with_settings("node-c", with_settings("node-d", NCCL_ALGO="Ring"), NCCL_PROTO="LL"),
        saying=["node-c has other settings: NCCL_PROTO", "node-d has other settings: NCCL_ALGO"],
        hosts=["node-c", "node-d"],
        count=2,
    ),
    between.silent(FOUR),
    between.silent(some_nodes(4)),
    between.silent(on_node(some_nodes(3), "node-a", settings=settings(MASTER_PORT="29500"))),
    between.silent(with_settings("node-c", TORCH_DISTRIBUTED_DEBUG="INFO")),  # only logs
    between.silent(  # names of interfaces, adapters and files differ between machines
        with_settings(
            "node-c",
            NCCL_SOCKET_IFNAME="=ens5",
            GLOO_SOCKET_IFNAME="ens5",
            NCCL_IB_HCA="mlx5_1",
            NCCL_DEBUG_FILE="/tmp/x",
            NCCL_TOPO_FILE="/etc/topo.xml",
            NCCL_HOSTID="c",
        )
    ),
    between.silent(with_settings("node-c", RANK="2", SLURM_NODEID="2", CUDA_VISIBLE_DEVICES="1")),
    between.skips(on_node(FOUR, "node-c", settings=Unread(why="late")), saying=["late"]),
    between.not_applicable(some_nodes(1), saying=["one node"]),
)
