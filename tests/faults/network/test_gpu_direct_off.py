from __future__ import annotations

from holdfast.analysis.machine import GpuDirect, NvidiaFacts, Unread
from tests.faults.machines import a_plan, settings
from tests.faults.made_topologies import BEHIND_A_SWITCH, IN_SLOTS, a_machine_of, pci_of
from tests.faults.table import check_table, not_applicable, silent, skips, speaks

NODES = a_plan(min_nodes=2, max_nodes=2)
RAILS = pci_of(BEHIND_A_SWITCH, driver="mlx5_core")
NONE = GpuDirect(peermem="", dmabuf=False, kernel="5.4.0")
PEERMEM = GpuDirect(peermem="nvidia_peermem 535.183.01", dmabuf=False, kernel="5.4.0")
DMABUF = GpuDirect(peermem="", dmabuf=True, kernel="6.8.0")

test_check = check_table(
    "gpu-direct-off",
    speaks(
        "warning",
        a_machine_of(RAILS, plan=NODES, gpu_direct=NONE),
        saying=["mlx5_0 cannot read GPU memory", "Linux 5.4.0", "sudo modprobe nvidia-peermem"],
    ),
    speaks(
        "warning",
        a_machine_of(
            RAILS, plan=NODES, gpu_direct=DMABUF, settings=settings(NCCL_DMABUF_ENABLE="0")
        ),
        saying=["NCCL_DMABUF_ENABLE=0", "unset NCCL_DMABUF_ENABLE"],
    ),
    silent(a_machine_of(RAILS, plan=NODES, gpu_direct=PEERMEM)),
    silent(a_machine_of(RAILS, plan=NODES, gpu_direct=DMABUF)),
    skips(
        a_machine_of(
            RAILS,
            plan=NODES,
            gpu_direct=GpuDirect(peermem="", dmabuf=Unread(why="not loaded"), kernel="6.8.0"),
        ),
        saying=["not loaded"],
    ),
    skips(
        a_machine_of(RAILS, plan=NODES, nvidia=NvidiaFacts(present=True, error="Unknown Error")),
        saying=["Unknown Error"],
    ),
    not_applicable(a_machine_of(RAILS, gpu_direct=NONE), saying=["one machine"]),
    not_applicable(
        a_machine_of(RAILS, plan=NODES, gpu_direct=NONE, nvidia=NvidiaFacts(present=False)),
        saying=["no NVIDIA GPU"],
    ),
    not_applicable(
        a_machine_of(RAILS, plan=NODES, gpu_direct=NONE, model="NVIDIA GeForce RTX 4090"),
        saying=["supports GPUDirect"],
    ),
    not_applicable(
        a_machine_of(pci_of(IN_SLOTS), plan=NODES, gpu_direct=NONE), saying=["no InfiniBand"]
    ),
    not_applicable(
        a_machine_of(pci_of(BEHIND_A_SWITCH, driver="efa"), plan=NODES, gpu_direct=NONE),
        saying=["no InfiniBand"],
    ),
    not_applicable(
        a_machine_of(RAILS, plan=NODES, gpu_direct=NONE, settings=settings(NCCL_IB_DISABLE="1")),
        saying=["rdma-unused"],
    ),
    not_applicable(
        a_machine_of(RAILS, plan=NODES, gpu_direct=NONE, settings=settings(NCCL_NET="Socket")),
        saying=["rdma-unused"],
    ),
)
