from __future__ import annotations

import msgspec
import pytest

from holdfast.analysis.machine import Container, Gid, Unread
from holdfast.analysis.machine.rdma import NO_ANSWER, NO_LIBRARY
from holdfast.catalogue import by_slug
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between, made_rdma
from tests.faults.machines import a_machine, a_plan, settings, software
from tests.faults.made_nodes import on_all, on_node, some_nodes
from tests.faults.made_rdma import (
    a_card,
    a_roce_port,
    an_efa_card,
    an_efa_port,
    an_ib_port,
    gids,
    of,
    rails,
)
from tests.faults.network.failing_ports import (
    A_FEW_BITS,
    FLAPPED,
    UNANSWERED,
    WENT_DOWN,
    a_change,
    all_wait,
)
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
from tests.faults.test_over_nodes import with_node
from tests.run.scenes import a_scene, held_up, on_nodes

RDMA_FAULTS = ("ib-misconfig", "ib-memlock", "hca-name-missing", "rdma-unused", "slow-nic")

MODIFY = (
    "[rank0]: misc/ibvwrap.cc:376 NCCL WARN Call to ibv_modify_qp failed with 22 Invalid argument, "
    "on dev mlx5_0:1, curr state INIT, next state RTR, local GID index 3, local GID "
    "::ffff:192.0.2.2, remote GID ::ffff:192.0.2.7"
)
OLD = (
    "[rank{}]: NCCL WARN NET/IB : Got completion from peer 192.0.2.7<43210> with error {}, opcode 0"
)

test_explain = explain_table(
    "ib-misconfig",
    recognises(
        wreckage(
            "NCCL WARN NET/IB: read failed in ncclIbRoceGetVersionNum: Invalid argument",
        ),
        sure=0.8,
        saying=["other network namespaces", "2.26.2", "show_gids"],
    ),
    recognises(
        wreckage("Failed to modify QP to RTR: Connection timed out"),
        sure=0.9,
        saying=["(Connection timed out): the two cards cannot reach each other"],
    ),
    recognises(
        wreckage(
            "E0719 [Handshake] Failed to modify QP to RTR, check mtu, gid, peer lid, peer qp num: "
            "Network is unreachable [101]"
        ),
        sure=0.9,
        saying=["no route from this card's address"],
    ),
    recognises(
        wreckage("UCX  ERROR error modifying QP to RTR: Invalid argument"),
        sure=0.9,
        saying=["GIDs of different types"],
    ),
    recognises(
        wreckage("UCX  WARN  IB Async event on mlx5_0: GID table change on port 1"),
        sure=0.6,
        saying=["mlx5_0 reported 'GID table change on port 1'"],
    ),
    recognises(
        wreckage("NCCL WARN NET/IB : mlx5_0:1 Got async error event: port error"),
        sure=0.85,
        what="mlx5_0:1",
        saying=["mlx5_0:1 reported 'port error'"],
    ),
    recognises(
        wreckage(
            "libfabric:85:1::core:core:fi_getinfo_():1392<warn> fi_getinfo: provider efa "
            "output empty list"
        ),
        sure=0.55,
        what="libfabric",
        saying=["could open no EFA card", "/dev/infiniband/uverbs0"],
    ),
    passes_over(wreckage("UCX  WARN  IB Async event on mlx5_0: client reregistration on port 1")),
    passes_over(wreckage("modify QP to RTR done")),
    recognises(
        wreckage(
            "NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129"
        ),
        sure=0.6,
        saying=["with the other side ended with status 12"],
    ),
    recognises(
        wreckage(MODIFY, settings={"NCCL_IB_GID_INDEX": "3"}),
        sure=0.9,
        what="mlx5_0:1",
        saying=["Invalid argument", "NCCL_IB_GID_INDEX=3 is set"],
    ),
    recognises(
        wreckage("NCCL WARN Call to ibv_modify_qp failed with error Connection timed out"),
        sure=0.9,
        saying=["rails that are not connected"],
    ),
    recognises(
        wreckage(OLD.format(2, 12)),
        sure=0.6,
        what="192.0.2.7",
        victims=[2],
        saying=["with 192.0.2.7 ended with status 12", "never acknowledged"],
    ),
    recognises(
        wreckage(
            "NCCL WARN NET/IB: Got completion from peer 192.0.2.7<43210> with "
            "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129  hca mlx5_3"
        ),
        sure=0.6,
        what="mlx5_3",
        saying=["status 12"],
    ),
    recognises(
        wreckage(OLD.format(2, 8)),
        sure=0.65,
        what="192.0.2.7",
        saying=["different MTUs"],
    ),
    recognises(
        wreckage(OLD.format(2, 12), "[rank0]: RuntimeError: Address already in use"),
        sure=0.35,  # a peer that died looks the same
        what="192.0.2.7",
        saying=["status 12"],
    ),
    recognises(
        wreckage("NCCL WARN NET/IB : mlx5_0:1 async fatal event: port error"),
        sure=0.85,
        what="mlx5_0:1",
        saying=["port error"],
    ),
    recognises(
        wreckage("NCCL WARN NET/IB : mlx5_0:1 GID table changed"),
        sure=0.6,
        what="mlx5_0:1",
        saying=["GID table changed"],
    ),
    recognises(
        wreckage("NCCL WARN NET/IB : Unable to open device mlx5_0"),
        sure=0.75,
        what="mlx5_0",
        saying=["--device /dev/infiniband"],
    ),
    recognises(
        wreckage(
            "NCCL WARN NET/IB : Attempted to connect incompatible devices: [0]mlx5_0:1/IB and "
            "[1]mlx5_1:1/RoCE. Try selecting NICs of only one link type"
        ),
        sure=0.9,
        what="the RDMA card",
        saying=["different types"],
    ),
    recognises(
        wreckage("NCCL WARN Call to ibv_reg_mr failed with error Bad address"),
        sure=0.5,
        what="the RDMA card",
        saying=["nvidia_peermem"],
    ),
    recognises(
        wreckage("NCCL WARN NET/OFI Request 0x7f1c completed with error. RC: 113."),
        sure=0.4,
        what="libfabric",
        saying=["security group"],
    ),
    passes_over(wreckage(OLD.format(2, 5))),  # the echo of another one's trouble
    passes_over(wreckage(OLD.format(2, 4))),  # GPUDirect and ACS: p2p-acs-iommu
    passes_over(wreckage("NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:192.0.2.2<0>")),
)


# --- run ------------------------------------------------------------------------------

test_run = run_table(
    "ib-misconfig",
    notices(
        all_wait(WENT_DOWN),
        ranks=[],
        victims=[0, 1, 2, 3],
        certain=False,
        saying=[
            "RDMA port mlx5_3:1 of node b went from ACTIVE to DOWN, link_downed +1",
            "ranks 0-3 wait in all_reduce #101, which no rank is missing from",
            "`ibstat mlx5_3`",
        ],
    ),
    notices(
        all_wait(A_FEW_BITS, FLAPPED),
        ranks=[],
        certain=False,
        saying=["link_downed +2 (the link failed), symbol_error +40"],
    ),
    notices(
        all_wait(FLAPPED, a_change("mlx5_5:1", state="gone"), UNANSWERED),
        ranks=[],
        certain=False,
        saying=[
            "mlx5_5:1 of node b went from ACTIVE to gone",
            "(and 2 more ports)",
            "did not acknowledge",
        ],
    ),
    overlooks(all_wait()),  # nothing happened at the ports
    overlooks(all_wait(A_FEW_BITS)),  # a few bits explain no hang
    overlooks(all_wait(a_change("mlx5_9:1", state="ACTIVE", state_before="DOWN"))),
    overlooks(with_node(on_nodes(held_up({2: {}})), "b", rdma=(WENT_DOWN,))),  # rank 2 is missing
    overlooks(with_node(on_nodes(held_up({})), "b", rdma=(WENT_DOWN,))),  # Gloo: not over RDMA
    overlooks(a_scene(rdma=(WENT_DOWN,))),  # steps continue
)


# --- check ----------------------------------------------------------------------------

TWO_NODES = a_plan(min_nodes=2, max_nodes=2)
DOCKER = Container(kind="docker", sign="/.dockerenv", rootless=False, network="host", ipc="host")
POD = msgspec.structs.replace(DOCKER, kind="kubernetes")
EIGHT = tuple(f"/dev/nvidia{n}" for n in range(8))
NEW = software(nccl="2.28.9")
FOREIGN = (*gids(), *(Gid(n, "0000:0000:0000:0000:0000:ffff:0a09:0001", "") for n in (2, 3)))

OWN_AMONG_FOREIGN = (*FOREIGN, Gid(6, "0000:0000:0000:0000:0000:ffff:0a01:0005", "RoCE v2"))

test_check = check_table(
    "ib-misconfig",
    # device nodes
    speaks(
        "warning",
        a_machine(TWO_NODES, **rails(8, open_error="ENOENT", active_mtu={}), container=DOCKER),
        saying=["8 RDMA cards here", "can open none", "`docker run --device /dev/infiniband`"],
    ),
    speaks(
        "warning",
        a_machine(TWO_NODES, **rails(2, open_error="EPERM"), container=POD),
        saying=["refuses to open them", "RDMA device plugin", "mlx5_0: EPERM"],
    ),
    speaks(
        "warning",
        a_machine(TWO_NODES, **rails(1, open_error="EACCES")),
        saying=["`ls -l /dev/infiniband`"],
    ),
    speaks(
        "note",
        a_machine(**rails(1, open_error="ENOENT")),
        saying=["can open none", "`sudo modprobe ib_uverbs`"],
    ),
    speaks(
        "warning",
        a_machine(TWO_NODES, **of(an_ib_port(), verbs_error=NO_ANSWER)),
        saying=[
            "mlx5_0 does not answer",
            "opens every card",
            "`dmesg | grep -i 0000:10:00.0`",
        ],
    ),
    speaks(
        "warning",
        a_machine(TWO_NODES, **of(an_ib_port(), verbs_error="ENOMEM")),
        saying=["libibverbs (ENOMEM)"],
    ),
    speaks(
        "note",  # all of /dev/infiniband in a pod that may use the EFA cards only
        a_machine(
            TWO_NODES,
            **of(
                an_efa_port(),
                an_ib_port("mlx5_0"),
                cards={
                    "rdmap16s27": an_efa_card(),
                    "mlx5_0": a_card("mlx5_0", open_error="EPERM"),
                },
            ),
        ),
        saying=["EFA cards can be opened, but mlx5_0 cannot", "`fi_info -p efa`"],
    ),
    # ports
    speaks(
        "warning",
        a_machine(TWO_NODES, **rails(8, {3: made_rdma.DOWN})),
        saying=[
            "mlx5_3:1 is down, while the other 7",
            "NCCL will use 7 of 8",
            "mlx5_3:1 DOWN, physical state Polling",
        ],
    ),
    speaks("note", a_machine(**rails(8, {3: made_rdma.DOWN})), saying=["mlx5_3:1 is down"]),
    speaks(
        "warning",  # a storage card is excluded, and a rail is down
        a_machine(
            TWO_NODES,
            **{**rails(9, {3: made_rdma.DOWN}), "accelerators": EIGHT},
            settings=settings(NCCL_IB_HCA="^mlx5_8"),
        ),
        saying=["mlx5_3:1 is down", "NCCL will use 7 of 8"],
    ),
    speaks(
        "note",  # not one for each GPU
        a_machine(TWO_NODES, **{**rails(3, {2: made_rdma.DOWN}), "accelerators": ()}),
        saying=["may be a spare port"],
    ),
    speaks(
        "warning",
        a_machine(TWO_NODES, **rails(2, {n: {"state": "INIT"} for n in (0, 1)})),
        saying=["mlx5_0:1 and mlx5_1:1 wait for a subnet manager", "`sudo sminfo`"],
    ),
    # addresses
    speaks(
        "warning",
        a_machine(TWO_NODES, **of(a_roce_port(address=""))),
        saying=["mlx5_0:1: NCCL finds no IP address", "link-local", "ens1f0np0"],
    ),
    speaks(
        "warning",  # IPv6 only, and NCCL looks for IPv4
        a_machine(TWO_NODES, **of(a_roce_port(address="2001:db8::5"))),
        saying=["NCCL_IB_ADDR_FAMILY=AF_INET6"],
    ),
    speaks(
        "note",  # accelerated networking beside InfiniBand would be silent; two RoCE ports are not
        a_machine(TWO_NODES, **of(a_roce_port("mlx5_0"), a_roce_port("mlx5_1", ""))),
        saying=["mlx5_1:1", "other ports have one"],
    ),
    speaks(
        "warning",
        a_machine(TWO_NODES, **of(a_roce_port()), settings=settings(NCCL_IB_GID_INDEX="7")),
        saying=["NCCL_IB_GID_INDEX=7 is an empty entry of mlx5_0:1", "`unset NCCL_IB_GID_INDEX`"],
    ),
    speaks(
        "warning",  # macvlan in a container
        a_machine(TWO_NODES, **of(a_roce_port(gids=FOREIGN)), software=software(nccl="2.25.1")),
        saying=["does not tell the type", "NCCL 2.25.1", "upgrade to NCCL 2.26.2"],
    ),
    # errors
    speaks(
        "warning",
        a_machine(TWO_NODES, **rails(8, {5: {"growing": {"symbol_error": 4812}}})),
        saying=["the link of mlx5_5:1 counts errors right now", "symbol_error +4812"],
    ),
    speaks(
        "note",
        a_machine(**rails(8, {5: {"growing": {"link_error_recovery": 1}}})),
        saying=["link_error_recovery +1"],
    ),
    *(
        silent(a_machine(TWO_NODES, **rails(8, {5: {"growing": {name: count}}})))
        for name, count in (("symbol_error", 2), ("packet_seq_err", 900), ("rx_drops", 5))
    ),
    silent(a_machine(TWO_NODES, **of(a_roce_port(gids=OWN_AMONG_FOREIGN)))),
    silent(a_machine(TWO_NODES, **rails(8, {3: {"state": "DOWN", "physical_state": "Disabled"}}))),
    silent(a_machine(TWO_NODES, **rails(8, dict.fromkeys(range(4), made_rdma.DOWN)))),  # half spare
    silent(a_machine(TWO_NODES, **rails(8), software=NEW)),
    silent(  # the one that is down is excluded
        a_machine(
            TWO_NODES, **rails(8, {3: made_rdma.DOWN}), settings=settings(NCCL_IB_HCA="^mlx5_3")
        )
    ),
    silent(  # hca-name-missing judges a list that selects
        a_machine(TWO_NODES, **rails(8, {3: made_rdma.DOWN}), settings=settings(NCCL_IB_HCA="mlx5"))
    ),
    silent(  # the container lacks the library: rdma-unused says so
        a_machine(TWO_NODES, **of(an_ib_port(), verbs_error=NO_LIBRARY))
    ),
    silent(
        a_machine(
            TWO_NODES,
            **of(a_roce_port(address="2001:db8::5")),
            settings=settings(NCCL_IB_ADDR_FAMILY="AF_INET6"),
        )
    ),
    not_applicable(a_machine(TWO_NODES), saying=["no RDMA card is visible"]),
    not_applicable(
        a_machine(TWO_NODES, **rails(8, open_error="ENOENT"), settings=settings(NCCL_NET="Socket")),
        saying=["NCCL_NET=Socket: NCCL uses no RDMA"],
    ),
    skips(
        a_machine(TWO_NODES, **{**rails(8), "rdma_cards": Unread(why="no answer within 2 s")}),
        saying=["no answer within 2 s"],
    ),
    skips(
        a_machine(TWO_NODES, **{**rails(8), "rdma_ports": Unread(why="no /sys")}),
        saying=["no /sys"],
    ),
)


@pytest.mark.parametrize("kind", made_rdma.HEALTHY)
@pytest.mark.parametrize("slug", RDMA_FAULTS)
def test_healthy_machines_are_silent(slug: str, kind: str) -> None:
    facts = a_machine(TWO_NODES, **made_rdma.HEALTHY[kind])
    findings = by_slug(slug).ask_check(facts)
    assert findings
    spoken = [f for f in findings if f.status.concern]
    assert [(kind, f.summary) for f in spoken] == []


# --- check, between nodes -------------------------------------------------------------

SIMILAR = on_all(some_nodes(4), lambda _: rails(8))
OF_ROCE = on_all(some_nodes(4), lambda _: of(a_roce_port()))

test_check_nodes = between.table(
    "ib-misconfig",
    between.speaks(
        "warning",
        on_node(SIMILAR, "node-c", **rails(8, {2: made_rdma.DOWN})),
        saying=["number of RDMA ports differs between nodes", "8 on node-a", "7 on node-c"],
        hosts=["node-c"],
    ),
    between.speaks(
        "warning",
        on_node(SIMILAR, "node-b", **rails(8, active_mtu={1: 2048})),
        saying=["MTU of RDMA ports", "2048 on node-b", "2.20 to 2.28"],
        hosts=["node-b"],
    ),
    between.speaks(
        "error",
        on_node(SIMILAR, "node-d", **of(*(a_roce_port(f"mlx5_{n}") for n in range(8)))),
        saying=["type of RDMA link differs between nodes", "RoCE on node-d", "cannot talk"],
        hosts=["node-d"],
    ),
    between.speaks(
        "warning",
        on_node(
            SIMILAR,
            "node-d",
            **rails(8, {n: made_rdma.in_subnet("fec0:0000:0000:0001") for n in range(8)}),
        ),
        saying=["InfiniBand subnet differs", "fec0:0000:0000:0001 on node-d"],
        hosts=["node-d"],
    ),
    between.speaks(
        "warning",
        on_node(OF_ROCE, "node-b", settings=settings(NCCL_IB_GID_INDEX="2")),
        saying=["type of RoCE address", "IB/RoCE v1, IPv4 on node-b", "RoCE v2, IPv4 on"],
        hosts=["node-b"],
    ),
    between.speaks(
        "warning",  # with two nodes neither is the odd one
        on_node(
            on_all(some_nodes(2), lambda _: rails(8)), "node-b", **rails(8, active_mtu={1: 1024})
        ),
        saying=["4096 on node-a", "1024 on node-b"],
        hosts=[""],
    ),
    between.silent(SIMILAR),
    between.silent(OF_ROCE),
    between.silent(  # each rail is a fabric of its own, alike on all nodes
        on_all(
            some_nodes(4),
            lambda _: rails(
                8, {n: made_rdma.in_subnet(f"fec0:0000:0000:000{n}") for n in range(8)}
            ),
        )
    ),
    between.silent(  # where libibverbs could not be asked the MTU is not known
        on_node(SIMILAR, "node-b", **rails(8, active_mtu={}))
    ),
    between.not_applicable(some_nodes(4), saying=["RDMA on no node"]),
    between.not_applicable(some_nodes(1), saying=["one node"]),
    between.skips(
        on_node(SIMILAR, "node-c", rdma_cards=Unread(why="no answer within 2 s")),
        saying=["no answer within 2 s"],
    ),
)
