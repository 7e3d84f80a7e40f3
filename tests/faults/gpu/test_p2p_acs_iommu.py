from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises

VIA = "[rank0]: NCCL INFO Channel 00/0 : 0[1b000] -> 1[1c000] via P2P/IPC"
IN_VAIN = (
    "[rank{}]: [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds"
)


def waits(rank: int, number: int) -> str:
    return IN_VAIN.format(rank, rank, number)


test_explain = explain_table(
    "p2p-acs-iommu",
    recognises(
        wreckage(
            "		ACSCtl:	SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- "
            "DirectTrans-"
        ),
        sure=0.55,
        what="ACS",
        saying=["redirect requests", "iommu=pt"],
    ),
    recognises(
        wreckage(
            "ACSCtl: SrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- "
            "DirectTrans-"
        ),
        sure=0.3,
        what="ACS",
        saying=["redirect no requests"],
    ),
    recognises(
        wreckage("# Out of bounds values : 8 FAILED"),
        sure=0.55,
        what="P2P",
        saying=["wrong data", "NCCL_P2P_DISABLE=1"],
    ),
    passes_over(
        wreckage(
            "ACSCtl: SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- "
            "DirectTrans-"
        )
    ),
    passes_over(wreckage("# Out of bounds values : 0 OK")),
    passes_over(
        wreckage(
            "ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+",
            "[rank1]: CUDA error: device-side assert triggered",
        )
    ),
    recognises(
        wreckage(
            "[rank3]: NCCL WARN NET/IB : Got completion from peer 192.0.2.7<41234> with error 4, "
            "opcode 32601, len 32600, vendor err 81 (Recv)"
        ),
        sure=0.75,
        rank=3,
        saying=["local protection error", "NCCL_NET_GDR_LEVEL=0", "ACSCtl"],
    ),
    recognises(
        wreckage(
            "NCCL WARN NET/IB: Got completion from peer 192.0.2.7<41234> with "
            "status=IBV_WC_LOC_PROT_ERR(4) opcode=IBV_WC_SEND(0) vendor_err=81  hca mlx5_0"
        ),
        sure=0.75,
        what="GPUDirect RDMA",
        saying=["status 4"],
    ),
    recognises(
        wreckage(
            "nvidia 0000:3d:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT device=3d:00.0 domain=0x1]"
        ),
        sure=0.8,
        what="IOMMU, device 3d:00.0",
        saying=["IOMMU refused"],
    ),
    recognises(
        wreckage(
            "[rank1]: transport/p2p.cc:238 NCCL WARN failed to open CUDA IPC handle : 217 peer "
            "access is not supported between these two devices"
        ),
        sure=0.6,
        rank=1,
        saying=["NCCL_P2P_DISABLE=1"],
    ),
    recognises(
        wreckage(VIA, waits(0, 1), waits(1, 1), world_size=2),
        sure=0.45,
        what="P2P",
        saying=["(0-1) hung in the same early collective (#1)", "NCCL_P2P_DISABLE=1"],
    ),
    recognises(
        wreckage(
            'NCCL WARN Missing "iommu=pt" from kernel command line which can lead to system hang!',
            VIA,
            waits(0, 1),
            waits(1, 1),
        ),
        sure=0.6,
        what="P2P",
        saying=["iommu=pt"],
    ),
    passes_over(wreckage(VIA, waits(0, 1000), waits(1, 1000), world_size=2)),
    passes_over(wreckage(VIA, waits(0, 1), world_size=2)),
    passes_over(wreckage(VIA, "[rank1]: CUDA error: device-side assert triggered", waits(0, 1))),
    passes_over(wreckage(VIA)),
    passes_over(wreckage("NCCL WARN NET/IB : Got completion from peer x with error 12, opcode 0")),
    passes_over(
        wreckage("transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported b'")
    ),
)

test_lint = lint_table(
    "p2p-acs-iommu",
    flags(
        "note",
        shell("export NCCL_P2P_DISABLE=1"),
        lines=[1],
        saying=["NVLink included", "remove NCCL_P2P_DISABLE", "keep the setting and say why"],
    ),
    flags(
        "note",
        python('import os\nos.environ["NCCL_P2P_DISABLE"] = "1"'),
        lines=[2],
        saying=["host memory"],
    ),
    leaves(shell("export NCCL_P2P_DISABLE=0")),
    leaves(shell("export NCCL_P2P_DISABLE=$NO_P2P")),
    leaves(shell("unset NCCL_P2P_DISABLE")),
)
