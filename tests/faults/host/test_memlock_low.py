from __future__ import annotations

import msgspec

from holdfast.analysis.machine import Limit, Software, Unread
from tests.analysis.source.made_sources import shell
from tests.faults.machines import a_machine, a_plan, limits
from tests.faults.table import (
    check_table,
    flags,
    leaves,
    lint_table,
    not_applicable,
    silent,
    skips,
    speaks,
)

TWO_NODES = a_plan(min_nodes=2, max_nodes=2)
SMALL = limits(memlock=Limit(soft=8 << 20, hard=8 << 20))
SOFTWARE = a_machine().software
assert isinstance(SOFTWARE, Software)
WITH_DEEPSPEED = msgspec.structs.replace(SOFTWARE, packages={"deepspeed": "0.17.0"})

test_check = check_table(
    "memlock-low",
    speaks(
        "note",
        a_machine(TWO_NODES, limits=SMALL),
        saying=[
            "only 8 MiB of memory may be locked",
            "RDMA on another machine of the job would fail",
        ],
    ),
    speaks("note", a_machine(limits=SMALL, software=WITH_DEEPSPEED), saying=["DeepSpeed locks"]),
    silent(a_machine(limits=SMALL)),  # one machine without RDMA: it does not matter
    silent(a_machine(TWO_NODES)),
    silent(a_machine(TWO_NODES, limits=limits(memlock=Limit(soft=64 << 20, hard=None)))),
    silent(a_machine(TWO_NODES, limits=limits(memlock=Limit(soft=0, hard=0), ipc_lock=True))),
    not_applicable(a_machine(TWO_NODES, limits=SMALL, rdma_devices=("mlx5_0",)), saying=["RDMA"]),
    skips(a_machine(limits=Unread(why="no /proc")), saying=["no /proc"]),
    skips(a_machine(limits=SMALL, rdma_devices=Unread(why="no /sys")), saying=["no /sys"]),
)

test_lint = lint_table(
    "memlock-low",
    flags("error", shell("sudo ulimit -l unlimited\n"), lines=[1], saying=["without sudo"]),
    flags(
        "warning",
        shell("docker run --gpus all --device=/dev/infiniband img torchrun x.py\n"),
        lines=[1],
        saying=["RDMA", "`--ulimit memlock=-1`"],
    ),
    flags(
        "warning",
        shell("docker run --device /dev/infiniband --ulimit memlock=65536 img torchrun x.py\n"),
        lines=[1],
        saying=["ibv_reg_mr"],
    ),
    flags(
        "error",
        shell("docker run --ulimit memlock=-1:65536 img torchrun x.py\n"),
        lines=[1],
        saying=["the container does not start"],
    ),
    leaves(shell("ulimit -l unlimited\n")),
    leaves(shell("docker run --gpus all img torchrun x.py\n")),
    leaves(shell("docker run --device=/dev/infiniband --ulimit memlock=-1:-1 img torchrun x.py\n")),
    leaves(shell("docker run --device=/dev/infiniband --cap-add=IPC_LOCK img torchrun x.py\n")),
    leaves(shell("docker run --device=/dev/infiniband --privileged img torchrun x.py\n")),
)
