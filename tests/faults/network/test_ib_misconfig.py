from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.network.failing_ports import (
    A_FEW_BITS,
    FLAPPED,
    NO_ANSWER,
    WENT_DOWN,
    a_change,
    all_wait,
)
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.faults.test_over_nodes import with_node
from tests.run.scenes import a_scene, held_up, on_nodes

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
            "mlx5_3:1 went from ACTIVE to DOWN, link_downed +1",
            "of node b",
            "ranks 0-3 wait in all_reduce #101, which no rank is missing from",
            "`ibstat mlx5_3`",
        ],
    ),
    notices(
        all_wait(A_FEW_BITS, FLAPPED),
        ranks=[],
        certain=False,
        saying=["link_downed +2 (the link failed and came back), symbol_error +40"],
    ),
    notices(
        all_wait(FLAPPED, a_change("mlx5_5:1", state="gone"), NO_ANSWER),
        ranks=[],
        certain=False,
        saying=["mlx5_5:1 went from ACTIVE to gone", "(and 2 more)", "did not acknowledge"],
    ),
    overlooks(all_wait()),  # nothing happened at the ports
    overlooks(all_wait(A_FEW_BITS)),  # a few bits explain no hang
    overlooks(all_wait(a_change("mlx5_9:1", state="ACTIVE", state_before="DOWN"))),
    overlooks(with_node(on_nodes(held_up({2: {}})), "b", rdma=(WENT_DOWN,))),  # rank 2 is missing
    overlooks(with_node(on_nodes(held_up({})), "b", rdma=(WENT_DOWN,))),  # Gloo: not over RDMA
    overlooks(a_scene(rdma=(WENT_DOWN,))),  # steps continue
)
