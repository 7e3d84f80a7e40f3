from __future__ import annotations

import msgspec

from holdfast.analysis.machine import GpuDirect, NvidiaFacts
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults.machines import a_machine, a_plan, settings
from tests.faults.made_topologies import BEHIND_A_SWITCH, IN_SLOTS, a_machine_of, pci_of
from tests.faults.table import (
    check_table,
    explain_table,
    flags,
    leaves,
    lint_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

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

REDIRECTED = pci_of(BEHIND_A_SWITCH, acs=True)
UNREADABLE = pci_of(BEHIND_A_SWITCH, acs=None)
TRANSLATED = msgspec.structs.replace(
    pci_of(IN_SLOTS, acs=True, iommu="DMA-FQ"), cpu_vendor="AuthenticAMD"
)
PASSED_THROUGH = msgspec.structs.replace(
    pci_of(IN_SLOTS, acs=True, iommu="identity"), cpu_vendor="AuthenticAMD"
)
TWO_NODES = a_plan(min_nodes=2, max_nodes=2)

test_check = check_table(
    "p2p-acs-iommu",
    speaks(
        "warning",
        a_machine_of(REDIRECTED),
        saying=[
            "between GPU0 and GPU1 through the root complex",
            "for b in 0000:18:00.0 0000:18:01.0; do sudo setpci",
        ],
    ),
    # GPUs talk over NVLink; a card reads their memory through the same bridges
    speaks(
        "warning",
        a_machine_of(REDIRECTED, nvlink=True, plan=TWO_NODES),
        saying=["between GPU0 and mlx5_0 and 1 other pair"],
    ),
    speaks(
        "warning",
        a_machine_of(TRANSLATED),
        saying=["the IOMMU translates addresses", "GPU0 and GPU1", "iommu=pt", "DMA-FQ"],
    ),
    silent(a_machine_of(pci_of(BEHIND_A_SWITCH))),
    silent(a_machine_of(PASSED_THROUGH)),
    # one group: ACS did not keep them apart
    silent(a_machine_of(pci_of(BEHIND_A_SWITCH, acs=None, iommu="DMA", iommu_group="7"))),
    skips(a_machine_of(UNREADABLE), saying=["sudo holdfast check"]),
    skips(a_machine_of(msgspec.structs.replace(TRANSLATED, iommu="unknown")), saying=["its IOMMU"]),
    skips(
        a_machine_of(pci_of(IN_SLOTS), nvidia=a_machine_of(REDIRECTED).nvidia),
        saying=["does not show 2 GPUs"],
    ),
    skips(
        a_machine_of(REDIRECTED, nvidia=NvidiaFacts(present=True, error="Unknown Error")),
        saying=["Unknown Error"],
    ),
    not_applicable(a_machine_of(REDIRECTED, nvlink=True), saying=["NVLink"]),
    not_applicable(
        a_machine_of(
            REDIRECTED,
            nvlink=True,
            plan=TWO_NODES,
            gpu_direct=GpuDirect(peermem="", dmabuf=False, kernel="6.8.0"),
        ),
        saying=["no direct traffic"],
    ),
    not_applicable(
        a_machine_of(msgspec.structs.replace(REDIRECTED, virtual_machine="QEMU")),
        saying=["virtual machine"],
    ),
    not_applicable(
        a_machine_of(REDIRECTED, settings=settings(NCCL_P2P_DISABLE="1")), saying=["no direct"]
    ),
    not_applicable(a_machine_of(TRANSLATED, model="NVIDIA GeForce RTX 4090"), saying=["no direct"]),
    # Intel: NCCL uses no P2P across root complexes
    not_applicable(
        a_machine_of(msgspec.structs.replace(TRANSLATED, cpu_vendor="GenuineIntel")),
        saying=["no direct"],
    ),
    not_applicable(
        a_machine_of(pci_of({"GPU0": BEHIND_A_SWITCH["GPU0"]}, acs=True)), saying=["one GPU"]
    ),
    not_applicable(a_machine(nvidia=NvidiaFacts(present=False)), saying=["no NVIDIA GPU"]),
)
