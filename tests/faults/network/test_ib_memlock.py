from __future__ import annotations

from holdfast.analysis.machine import Container, Limit, Limits, Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import made_rdma
from tests.faults.machines import GIB, a_machine, a_plan, limits, settings
from tests.faults.made_rdma import rails
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

TWO_NODES = a_plan(min_nodes=2, max_nodes=2)
CARDS = ("mlx5_0", "mlx5_1")


def locked(soft: int, hard: int | None = None, **changes: object) -> Limits:
    return limits(memlock=Limit(soft=soft, hard=hard), **changes)


SMALL = locked(8 << 20, 8 << 20)

test_check = check_table(
    "ib-memlock",
    speaks(
        "error",
        a_machine(TWO_NODES, rdma_devices=CARDS, limits=SMALL),
        saying=["only 8 MiB", "mlx5_0, mlx5_1", "ibv_reg_mr", "/etc/security/limits.d/"],
    ),
    speaks(
        "error",
        a_machine(TWO_NODES, rdma_devices=CARDS, limits=locked(8 << 20)),
        saying=["hard limit unlimited", "`ulimit -l unlimited`"],
    ),
    speaks(
        "error",
        a_machine(
            TWO_NODES,
            rdma_devices=CARDS,
            limits=SMALL,
            container=Container(
                kind="docker", sign="/.dockerenv", rootless=False, network="host", ipc="host"
            ),
        ),
        saying=["docker run --ulimit memlock=-1"],
    ),
    speaks(
        "error",  # your own shell may lock anything, the launcher may not
        a_machine(
            TWO_NODES, rdma_devices=CARDS, launcher_limits=locked(64 << 10, 64 << 10, pid=77)
        ),
        saying=["in the launcher (pid 77)", "64 KiB"],
    ),
    speaks(
        "note",
        a_machine(rdma_devices=CARDS, limits=SMALL),
        saying=["on one machine NCCL does not use RDMA"],
    ),
    speaks(
        "note",
        a_machine(TWO_NODES, rdma_devices=CARDS, limits=locked(64 * GIB)),
        saying=["64 GiB", "is enough"],
    ),
    silent(a_machine(TWO_NODES, rdma_devices=CARDS)),
    silent(a_machine(TWO_NODES, rdma_devices=CARDS, limits=locked(8 << 20, ipc_lock=True))),
    silent(a_machine(TWO_NODES, rdma_devices=CARDS, launcher_limits=limits(pid=77))),
    not_applicable(a_machine(TWO_NODES, limits=SMALL), saying=["no RDMA device"]),
    not_applicable(  # cards without a cable
        a_machine(TWO_NODES, limits=SMALL, **rails(2, dict.fromkeys((0, 1), made_rdma.DOWN))),
        saying=["no RDMA port is active"],
    ),
    speaks(  # EFA registers memory as well
        "error", a_machine(TWO_NODES, limits=SMALL, **made_rdma.EFA), saying=["rdmap16s27"]
    ),
    not_applicable(
        a_machine(
            TWO_NODES, rdma_devices=CARDS, limits=SMALL, settings=settings(NCCL_IB_DISABLE="1")
        ),
        saying=["NCCL_IB_DISABLE=1"],
    ),
    skips(
        a_machine(TWO_NODES, rdma_devices=CARDS, limits=Unread(why="no /proc")), saying=["/proc"]
    ),
    skips(a_machine(TWO_NODES, rdma_devices=Unread(why="no /sys")), saying=["no /sys"]),
    skips(
        a_machine(TWO_NODES, rdma_devices=CARDS, launcher_limits=Unread(why="pid 77 is gone")),
        saying=["pid 77 is gone"],
    ),
)


# --- explain --------------------------------------------------------------------------

test_explain = explain_table(
    "ib-memlock",
    recognises(
        wreckage(
            "UCX  ERROR mlx5_0: ibv_create_cq(cqe=4096) failed: Cannot allocate memory : Please "
            "set max locked memory (ulimit -l) to 'unlimited' (current: 64 kbytes)"
        ),
        sure=0.93,
        what="RLIMIT_MEMLOCK",
        saying=["ibv_create_cq", "the limit was 64 KiB"],
    ),
    recognises(
        wreckage(
            "UCX  ERROR ibv_reg_mr(address=0x7f00, length=65536, access=0xf) failed: Cannot "
            "allocate memory"
        ),
        sure=0.6,
        what="RLIMIT_MEMLOCK",
        saying=["ibv_reg_mr"],
    ),
    recognises(
        wreckage("allocate some locked memory.  This typically can indicate that the"),
        sure=0.93,
        what="RLIMIT_MEMLOCK",
        saying=["could not lock the memory it needs:"],
    ),
    passes_over(wreckage("RuntimeError: mmap failed: Cannot allocate memory")),
    recognises(
        wreckage("[rank3]: NCCL WARN Call to ibv_reg_mr failed with error Cannot allocate memory"),
        sure=0.93,
        what="RLIMIT_MEMLOCK",
        victims=[3],
        saying=["could not lock the memory", "ulimit -l"],
    ),
    recognises(
        wreckage(
            "libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.",
            "NCCL WARN Call to ibv_create_qp failed",
        ),
        sure=0.93,
        what="RLIMIT_MEMLOCK",
        saying=["the limit was 64 KiB"],
    ),
    recognises(
        wreckage("NCCL WARN Call to ibv_create_cq failed with error Invalid argument"),
        sure=0.6,
        what="RLIMIT_MEMLOCK",
        saying=["ibv_create_cq"],
    ),
    passes_over(wreckage("libibverbs: Warning: RLIMIT_MEMLOCK is 65536 bytes.")),
    passes_over(wreckage("NCCL WARN Call to ibv_reg_mr failed with error Bad address")),
)
