from holdfast.analysis.machine import Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults.machines import a_machine, a_plan, settings
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
from tests.faults.two_hosts import TWO_HOSTS

TWO = a_plan(min_nodes=2, max_nodes=2)

test_check = check_table(
    "loopback-multi-node",
    speaks(
        "error",
        a_machine(TWO, settings=settings(NCCL_SOCKET_IFNAME="lo")),
        saying=["selects loopback for a job on up to 2 machines", "127.0.0.1", "ip route get"],
    ),
    speaks(
        "error",
        a_machine(TWO, settings=settings(NCCL_SOCKET_IFNAME="=lo", GLOO_SOCKET_IFNAME="lo")),
        saying=["NCCL announces", "Gloo announces"],
    ),
    speaks(
        "error",  # elastic: one machine is enough, but two may come
        a_machine(a_plan(min_nodes=1, max_nodes=4), settings=settings(GLOO_SOCKET_IFNAME="lo")),
        saying=["up to 4 machines"],
    ),
    speaks(
        "error",  # eth0 comes after lo in the list of the kernel
        a_machine(TWO, settings=settings(NCCL_SOCKET_IFNAME="eth,lo")),
        saying=["NCCL announces 127.0.0.1"],
        not_saying=["depends on their order"],
    ),
    speaks(
        "warning",
        a_machine(
            TWO, settings=settings(NCCL_SOCKET_IFNAME="eth,lo"), interfaces=Unread(why="no netlink")
        ),
        saying=["depends on their order"],
    ),
    speaks(
        "error",
        a_machine(TWO, settings=settings(GLOO_SOCKET_IFNAME="eth0,lo")),
        saying=["Gloo announces 127.0.0.1"],
    ),
    silent(  # Gloo fails before it takes lo: nic-name-missing
        a_machine(TWO, settings=settings(GLOO_SOCKET_IFNAME="eth9,lo"))
    ),
    speaks(
        "note",
        a_machine(settings=settings(NCCL_SOCKET_IFNAME="lo")),
        saying=["not needed on one machine"],
    ),
    silent(a_machine(TWO, settings=settings(NCCL_SOCKET_IFNAME="eth0"))),
    silent(a_machine(TWO, settings=settings(NCCL_SOCKET_IFNAME="^lo,docker"))),
    silent(a_machine(TWO, settings=settings(NCCL_SOCKET_IFNAME="=lowpan0"))),
    silent(a_machine(TWO, settings=settings(NCCL_SOCKET_IFNAME="l"))),  # ignored by NCCL
    silent(a_machine(TWO, settings=settings(GLOO_SOCKET_IFNAME="lowpan0"))),
    not_applicable(a_machine(TWO), saying=["are not set"]),
    skips(a_machine(TWO, settings=Unread(why="not permitted")), saying=["not permitted"]),
)


# --- explain --------------------------------------------------------------------------

REFUSED = "[rank1]: NCCL WARN Net : Connect to 127.0.0.1<43210> failed : Connection refused"
LO = {"NCCL_SOCKET_IFNAME": "lo"}

test_explain = explain_table(
    "loopback-multi-node",
    recognises(
        wreckage(REFUSED, settings=LO, ranks=TWO_HOSTS),
        sure=0.9,
        what="NCCL_SOCKET_IFNAME=lo",
        saying=["connected to themselves", "unset NCCL_SOCKET_IFNAME"],
    ),
    recognises(
        wreckage(REFUSED, settings=LO),
        sure=0.65,
        what="NCCL_SOCKET_IFNAME=lo",
        saying=["127.0.0.1"],
    ),
    passes_over(wreckage("[rank0]: step 12", settings=LO, ranks=TWO_HOSTS)),
    passes_over(wreckage(REFUSED, settings={"NCCL_SOCKET_IFNAME": "^docker0"}, ranks=TWO_HOSTS)),
)

test_lint = lint_table(
    "loopback-multi-node",
    flags(
        "error",
        shell("export NCCL_SOCKET_IFNAME=lo\ntorchrun --nnodes=2 --node-rank=$1 train.py"),
        lines=[1],
        saying=["up to 2 machines", "127.0.0.1", "remove NCCL_SOCKET_IFNAME"],
    ),
    flags(
        "error",
        shell("""
            #!/bin/bash
            #SBATCH --nodes=4
            export GLOO_SOCKET_IFNAME=lo
            srun python train.py
        """),
        lines=[3],
        saying=["up to 4 machines", "Gloo"],
    ),
    flags(
        "warning",  # which of them is taken depends on their order
        shell("NCCL_SOCKET_IFNAME=lo,eth0 torchrun --nnodes 1:3 train.py"),
        lines=[1],
        saying=["up to 3 machines"],
    ),
    flags(
        "note",
        shell("export NCCL_SOCKET_IFNAME==lo\ntorchrun --standalone train.py"),
        lines=[1],
        saying=["not needed on one machine", "as soon as a second machine joins"],
    ),
    flags(
        "note",
        python('import os\nos.environ["GLOO_SOCKET_IFNAME"] = "lo"'),
        lines=[2],
        saying=["not needed"],
    ),
    flags(  # the launch over two machines does not get it
        "note",
        shell("NCCL_SOCKET_IFNAME=lo torchrun --nnodes=1 a.py\ntorchrun --nnodes=2 b.py"),
        lines=[1],
        saying=["not needed on one machine"],
    ),
    leaves(shell("export NCCL_SOCKET_IFNAME=eth0\ntorchrun --nnodes=2 train.py")),
    leaves(shell("export NCCL_SOCKET_IFNAME=^lo\ntorchrun --nnodes=2 train.py")),
    leaves(shell("export GLOO_SOCKET_IFNAME=^docker0,lo\ntorchrun --nnodes=2 train.py")),
    leaves(shell("export NCCL_SOCKET_IFNAME=$IFACE\ntorchrun --nnodes=2 train.py")),
    leaves(shell("NCCL_SOCKET_IFNAME=lo\ntorchrun --nnodes=2 train.py")),
)
