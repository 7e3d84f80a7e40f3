from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises
from tests.faults.two_hosts import TWO_HOSTS

LO = "[rank0]: NCCL INFO Bootstrap: Using lo:127.0.0.1<0>"
REFUSED = (
    "[rank1]: NCCL INFO socketPollConnect: connect to 127.0.0.1<57525> returned Connection "
    "refused, retrying (1/34) after sleep for 100 msec"
)
STUCK = (
    "[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)

test_explain = explain_table(
    "wrong-nic",
    recognises(
        wreckage(
            "[a][[38971,1],2][btl_tcp_endpoint.c:796:mca_btl_tcp_endpoint_complete_connect] "
            "connect() to 172.17.0.1 failed: Connection refused (111)"
        ),
        sure=0.6,
        what="docker0",
        saying=["Open MPI connected to 172.17.0.1", "btl_tcp_if_include"],
    ),
    recognises(
        wreckage(
            "Exception: Unable to find a set of common task-to-task communication interfaces: [(0, "
            "{'eth0'})]"
        ),
        sure=0.6,
        saying=["Horovod found no interface", "--network-interfaces"],
    ),
    passes_over(wreckage("connect() to 192.0.2.7 failed: No route to host (113)")),
    recognises(
        wreckage(LO, REFUSED, settings={"NCCL_SOCKET_IFNAME": "^docker0"}),
        sure=0.75,
        what="lo, re-admitted by ^docker0",
        saying=["lo (127.0.0.1)", "replaces NCCL's own rules and admits lo"],
    ),
    recognises(
        wreckage(LO, REFUSED, ranks=TWO_HOSTS),
        sure=0.9,
        what="lo",
        saying=["that other machines cannot reach"],
    ),
    recognises(wreckage(REFUSED), sure=0.6, what="lo", saying=["announced lo"]),
    recognises(
        wreckage(LO, STUCK, ranks=TWO_HOSTS), sure=0.7, what="lo", saying=["NCCL_SOCKET_IFNAME"]
    ),
    recognises(
        wreckage(
            "NCCL INFO Bootstrap : Using [0]docker0:172.17.0.1<0>",
            "NCCL WARN Net : Connect to 172.17.0.1<43210> failed : Connection refused",
        ),
        sure=0.75,
        what="docker0",
        saying=["docker0 (172.17.0.1)"],
    ),
    recognises(
        wreckage(  # NCCL 2.3
            "NCCL INFO NET : Using interface lo:127.0.0.1<0>",
            "NCCL WARN Call to connect timeout : Connection refused",
        ),
        sure=0.75,
        what="lo",
        saying=["lo (127.0.0.1)"],
    ),
    recognises(
        wreckage(LO, REFUSED, settings={"NCCL_SOCKET_IFNAME": "lo"}),
        sure=0.5,  # loopback-multi-node says it better
        what="lo",
        saying=["NCCL_SOCKET_IFNAME=lo"],
    ),
    recognises(
        wreckage(
            "[rank0]: NCCL INFO Bootstrap: Using eth0:192.0.2.2<0>",
            "[rank1]: NCCL INFO Bootstrap: Using eth1:198.51.100.3<0>",
            "[rank1]: NCCL WARN Net : Connect to 192.0.2.2<43210> failed : Connection timed out",
            ranks=TWO_HOSTS,
        ),
        sure=0.5,
        what="eth0, eth1",
        saying=["different networks"],
    ),
    passes_over(wreckage(LO)),  # one machine: it works
    passes_over(wreckage(LO, STUCK)),
    passes_over(
        wreckage(
            "[rank0]: NCCL INFO Bootstrap: Using eth0:192.0.2.2<0>",
            "[rank1]: NCCL WARN Net : Connect to 192.0.2.7<43210> failed : Connection timed out",
        )
    ),
)

test_lint = lint_table(
    "wrong-nic",
    flags(
        "error",
        shell("export NCCL_SOCKET_IFNAME=^docker0\ntorchrun --nnodes=2 train.py"),
        lines=[1],
        saying=["admits the loopback interface", "'^docker0,lo'"],
    ),
    flags(
        "warning",
        shell("export NCCL_SOCKET_IFNAME=^docker,br-"),
        lines=[1],
        saying=["That works on one machine"],
    ),
    flags(
        "warning",
        python('import os\nos.environ["NCCL_SOCKET_IFNAME"] = "^=eth0"'),
        lines=[2],
        saying=["'^=eth0,lo'"],
    ),
    flags(
        "warning",
        shell("export NCCL_SOCKET_IFNAME=eth0,br-1a2b3c\nexport GLOO_SOCKET_IFNAME=docker0"),
        lines=[1, 2],
        saying=["selects br-1a2b3c", "selects docker0", "`ip route get`"],
    ),
    leaves(shell("export NCCL_SOCKET_IFNAME=^docker0,lo\ntorchrun --nnodes=2 train.py")),
    leaves(shell("export NCCL_SOCKET_IFNAME=^lo,docker\ntorchrun --nnodes=2 train.py")),
    leaves(shell("export NCCL_SOCKET_IFNAME==eth0 GLOO_SOCKET_IFNAME=eth0")),
    leaves(shell("export NCCL_SOCKET_IFNAME=bond0,br0")),  # br0 is often a machine's real one
    leaves(shell("export NCCL_SOCKET_IFNAME=docker0\ntorchrun --nnodes=1 train.py")),
    leaves(shell("export GLOO_SOCKET_IFNAME=^docker0,br-7f")),  # nic-filter-syntax
    leaves(shell("export NCCL_SOCKET_IFNAME=^$SKIP NCCL_IB_HCA=^mlx5_2")),
)
