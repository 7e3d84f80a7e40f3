from __future__ import annotations

from typing import Any

from holdfast.analysis.machine import Container, Plan, Resolution, Unread
from holdfast.analysis.source.source import Source
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults import between
from tests.faults.machines import a_loopback, a_machine, a_plan, an_interface
from tests.faults.made_nodes import absent, on_all, on_node, resolving, some_nodes
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


def plan(addr: str, **changes: Any) -> Plan:
    named = {"max_nodes": 2, "min_nodes": 2, "master_addr": addr, "master_origin": "MASTER_ADDR"}
    return a_plan(**(named | changes))


def means(name: str, *found: str) -> Resolution:
    error = "" if found else "Name or service not known"
    return Resolution(name=name, addresses=found, error=error, seconds=0.001)


WITH_DOCKER = (
    a_loopback(),
    an_interface(),
    an_interface("docker0", "172.17.0.1", kind="bridge", state="down", running=False),
)
POD = Container(kind="kubernetes", sign="", rootless=None, network="own", ipc="own")

test_check = check_table(
    "wrong-master-address",
    speaks(
        "error",
        a_machine(plan("127.0.0.1", node_rank=0)),
        saying=[
            "own loopback",
            "`export MASTER_ADDR=10.0.0.5` on every node (eth0 of this machine)",
        ],
    ),
    speaks(
        "error",
        a_machine(plan("localhost", master_origin="--master-addr", node_rank=1)),
        saying=["localhost", "`--master-addr ADDRESS`", "this machine's is 10.0.0.5"],
    ),
    speaks(
        "error",  # a name that is loopback here
        a_machine(plan("node-a"), master_name=means("node-a", "127.0.1.1")),
        saying=["node-a is 127.0.1.1"],
    ),
    speaks("error", a_machine(plan("0.0.0.0")), saying=["every node would wait for itself"]),
    speaks(
        "error",
        a_machine(plan("", rdzv_backend="c10d", rdzv_endpoint="localhost:29400")),
        saying=["`--rdzv-endpoint ADDRESS:29400`"],
    ),
    speaks(
        "error",
        a_machine(plan("10.0.0.77", node_rank=0)),
        saying=["no interface here has the master address 10.0.0.77", "node rank 0"],
        not_saying=["service address"],
    ),
    speaks(
        "error",
        a_machine(plan("10.0.0.77", max_nodes=1, min_nodes=1)),
        saying=["the only node", "--standalone"],
    ),
    speaks(
        "warning",  # a service address may lead back to this pod
        a_machine(plan("10.96.0.7", node_rank=0), container=POD),
        saying=["service address"],
    ),
    speaks(
        "warning",
        a_machine(plan("10.0.0.77", node_rank=0), container=Unread(why="no /proc/1")),
        saying=["no interface here"],
    ),
    speaks(
        "error",
        a_machine(plan("172.17.0.1", node_rank=0), interfaces=WITH_DOCKER),
        saying=["is on the bridge docker0", "cannot reach it"],
    ),
    speaks(
        "error",  # a container's address: behind this machine's own bridge
        a_machine(plan("172.17.0.2", node_rank=1), interfaces=WITH_DOCKER),
        saying=["docker0"],
    ),
    speaks(
        "warning",
        a_machine(plan("fe80::1", node_rank=1)),
        saying=["link-local", "fe80::1%eth0"],
    ),
    silent(a_machine(plan("10.0.0.5", node_rank=0))),
    silent(a_machine(plan("127.0.0.1", max_nodes=1, min_nodes=1))),
    silent(a_machine(plan("10.0.0.77", node_rank=1))),
    silent(a_machine(plan("fe80::1%eth0", node_rank=1))),
    # the hypervisor's own bridge with the network card in it
    silent(
        a_machine(
            plan("10.0.0.5", node_rank=0),
            interfaces=(a_loopback(), an_interface("br0", kind="bridge")),
        )
    ),
    # c10d ignores the node's rank: another machine may host
    silent(
        a_machine(plan("", node_rank=0, rdzv_backend="c10d", rdzv_endpoint="10.0.0.9:29400")),
    ),
    # docker's bridge is no harm on one node
    silent(
        a_machine(plan("172.17.0.1", max_nodes=1, min_nodes=1), interfaces=WITH_DOCKER),
    ),
    skips(
        a_machine(plan("node-x"), master_name=means("node-x")),
        saying=["node-x does not resolve: Name or service not known"],
    ),
    skips(
        a_machine(plan("", rdzv_endpoint="node-x:29400", rdzv_backend="c10d")),
        saying=["node-x was not resolved"],
    ),
    skips(a_machine(plan("10.0.0.9"), interfaces=Unread(why="no /sys")), saying=["no /sys"]),
    not_applicable(a_machine(), saying=["no master address is set"]),
)


# --- explain --------------------------------------------------------------------------

AT_HOME = "The client socket has timed out after 60s while trying to connect to (127.0.0.1, 29500)."

test_explain = explain_table(
    "wrong-master-address",
    recognises(
        wreckage(f"[rank1]: {AT_HOME}", ranks=TWO_HOSTS),
        sure=0.85,
        what="MASTER_ADDR=127.0.0.1",
        saying=["the node itself"],
    ),
    recognises(
        wreckage(
            "The client socket has timed out after 60s while trying to connect to (172.17.0.2, "
            "29500)."
        ),
        sure=0.5,
        what="172.17.0.2",
        saying=["Docker's default bridge"],
    ),
    recognises(
        wreckage(
            "The client socket has timed out after 60s while trying to connect to "
            "(tcp://192.0.2.7, 29500)."
        ),
        sure=0.9,
        what="tcp://192.0.2.7",
        saying=["that is a URL"],
    ),
    recognises(
        wreckage(
            "[E socket.cpp:435] [c10d] The server socket has failed to bind to [192.0.2.9]:29500 "
            "(errno: 99 - Cannot assign requested address)."
        ),
        sure=0.75,
        what="the master address",
        saying=["does not have", "ip -br address"],
    ),
    passes_over(wreckage(f"[rank1]: {AT_HOME}")),  # one machine: loopback is right
    passes_over(
        wreckage(  # no IPv6 there: it continues over IPv4
            "[W socket.cpp:601] [c10d] The client socket has failed to connect to "
            "[localhost]:29500 (errno: 99 - Cannot assign requested address)."
        )
    ),
)

BATCH = "#!/bin/bash\n#SBATCH --nodes=4\n"

test_lint = lint_table(
    "wrong-master-address",
    flags(
        "error",
        shell("torchrun --nnodes=2 --node-rank=$1 --master_addr=127.0.0.1 x.py\n"),
        lines=[1],
        saying=["each machine's own loopback", "2 nodes", "hostname -I"],
    ),
    flags(
        "error",
        shell("torchrun --nnodes=4 --rdzv-backend=c10d --rdzv-endpoint=localhost:29400 x.py\n"),
        lines=[1],
        saying=["--rdzv-endpoint localhost"],
    ),
    flags(
        "warning",
        shell("torchrun --nnodes=1:4 --rdzv-backend=c10d --rdzv-endpoint=localhost:29400 x.py\n"),
        lines=[1],
        saying=["up to 4"],
    ),
    flags(
        "error",
        shell("accelerate launch --num_machines 2 --main_process_ip 0.0.0.0 x.py\n"),
        lines=[1],
        saying=["--main-process-ip 0.0.0.0"],
    ),
    flags(
        "error",
        shell(BATCH + "export MASTER_ADDR=localhost\nsrun python x.py\n"),
        lines=[3],
        saying=["4 nodes", "scontrol show hostnames"],
    ),
    flags(
        "error",
        shell("export MASTER_ADDR=http://node-a:29500\n"),
        lines=[1],
        saying=["is a URL", "`node-a`"],
    ),
    flags(
        "error",
        shell("export MASTER_ADDR=node-a:29500\n"),
        lines=[1],
        saying=["MASTER_ADDR=node-a", "MASTER_PORT=29500"],
    ),
    flags(
        "warning",
        shell("torchrun --nnodes=2 --node-rank=$1 --master-addr=172.17.0.2 x.py\n"),
        lines=[1],
        saying=["Docker's default bridge"],
    ),
    flags(
        "warning",
        shell(
            """
            export MASTER_ADDR=$(hostname)
            torchrun --nnodes=2 --node-rank=$SLURM_NODEID --master-addr=$MASTER_ADDR x.py
            """
        ),
        lines=[1],
        saying=["each node sets itself", "scontrol"],
    ),
    flags(
        "error",
        shell(BATCH + "srun torchrun --nnodes=$SLURM_NNODES --rdzv-endpoint=localhost:29400 x\n"),
        lines=[3],
        saying=["4 nodes"],
    ),
    leaves(shell("torchrun --nnodes=1 --master-addr=127.0.0.1 x.py\n")),
    leaves(shell("torchrun --nnodes=2 --node-rank=$1 --master-addr=$MASTER x.py\n")),
    leaves(shell("export MASTER_ADDR=localhost\npython x.py\n")),
    leaves(shell("export MASTER_ADDR=fe80::1\nexport MASTER_ADDR=<address>\n")),
    leaves(  # two nodes rehearsed on one machine
        shell(
            """
            torchrun --nnodes=2 --node-rank=0 --master-addr=localhost x.py &
            torchrun --nnodes=2 --node-rank=1 --master-addr=localhost x.py
            """
        )
    ),
    leaves(  # torchrun overwrites it: deepspeed-port-ignored speaks
        shell(BATCH + "export MASTER_ADDR=localhost\nsrun torchrun --nnodes=4 $ARGS x.py\n")
    ),
    # asked on every node
    flags(
        "error",
        shell(
            BATCH
            + """srun bash -c 'export MASTER_ADDR=$(hostname -f)
              torchrun --nnodes=$SLURM_NNODES --node-rank=$SLURM_NODEID \\
                --master-addr=$MASTER_ADDR x.py'
            """
        ),
        lines=[3],
        saying=["each node sets itself", "srun runs this on every node", "scontrol"],
    ),
    flags(
        "error",
        shell(
            BATCH + 'srun sh -c "torchrun --nnodes=4 --rdzv-endpoint=\\$(uname -n):29400 x.py"\n'
        ),
        lines=[3],
        saying=["each node sets itself"],
    ),
    flags(
        "warning",
        shell(BATCH + "srun bash -c 'MASTER_ADDR=`hostname` RANK=$SLURM_PROCID python x.py'\n"),
        lines=[3],
        saying=["differs on each"],
    ),
    flags(
        "error",
        shell(
            """
            for at in 0 1 2; do
              ssh node$at "torchrun --nnodes 3 --node_rank $at --master_addr \\$(hostname) x.py" &
            done
            """
        ),
        lines=[2],
        saying=["ssh runs this on every node"],
    ),
    flags(
        "error",
        shell(
            """
            for at in 0 1; do
              ssh node$at torchrun --nnodes 2 --node_rank $at --master_addr localhost x.py &
            done
            """
        ),
        lines=[2],
        saying=["own loopback"],
    ),
    *(
        leaves(shell(BATCH + text + "\n"))
        for text in (
            # this shell asks, once
            'srun bash -c "torchrun --nnodes=4 --rdzv-endpoint=$(hostname):29400 x.py"',
            "srun torchrun --nnodes=4 --rdzv-endpoint=$(hostname):29400 x.py",
            # a separate job on each node
            "srun bash -c 'torchrun --nnodes=1 --master-addr=$(hostname) x.py'",
            "srun bash -c 'MASTER_ADDR=$(hostname); torchrun --nproc-per-node=8 x.py'",
            # one node is asked
            "srun -N1 -n1 bash -c 'MASTER_ADDR=$(hostname) python x.py'",
            "srun -w $FIRST bash -c 'MASTER_ADDR=$(hostname) python x.py'",
            # the rank's own file tells the others
            "srun bash -c 'if [ $RANK = 0 ]; then MASTER_ADDR=$(hostname); fi; python x.py'",
        )
    ),
    leaves(
        shell("ssh head 'torchrun --nnodes=2 --node-rank=0 --master-addr=$(hostname) x.py' &\n")
    ),
    leaves(  # the batch script runs on the first node, whose name it is
        shell(BATCH + "export MASTER_ADDR=$(hostname)\nsrun python x.py\n")
    ),
    flags(
        "warning",
        shell("torchrun --nnodes 2 --node-rank $1 --master-addr $(hostname -f) x.py\n"),
        lines=[1],
        saying=["each node sets itself", "given from outside"],
    ),
    leaves(
        shell(
            """
            if [ $1 = 0 ]; then A=$(hostname); else A=$2; fi
            torchrun --nnodes 2 --node-rank $1 --master-addr $A x.py
            """
        )
    ),
    leaves(shell("A=${A:-$(hostname)}\ntorchrun --nnodes 2 --node-rank $1 --master-addr $A x\n")),
    leaves(shell("torchrun --nnodes 1 --node-rank $1 --master-addr $(hostname) x.py\n")),
)

FIRST = "$(scontrol show hostnames | head -n 1 || echo 'localhost')"
OF_SRUN = "$SLURM_LAUNCH_NODE_IPADDR"


def asked(address: str, *, nodes: int = 4, lines: str = "") -> Source:
    run = f"srun torchrun --nnodes={nodes} --rdzv-backend c10d --rdzv-endpoint={address}:29400 x.py"
    return shell(f"#!/bin/bash\n#SBATCH --nodes={nodes}\n{lines}{run}\n")


test_lint_of_what_is_asked_at_the_start = lint_table(
    "wrong-master-address",
    flags("warning", asked(FIRST), lines=[3], saying=["falls back to localhost", "4 nodes"]),
    flags(
        "warning",
        asked("$ip", lines="ip=`getent hosts head || echo 127.0.0.1`\n"),
        lines=[3],
        saying=["falls back to 127.0.0.1"],
    ),
    flags(
        "warning",
        shell(f"{BATCH}export MASTER_ADDR={FIRST}\nsrun python x.py\n"),
        lines=[3],
        saying=["MASTER_ADDR falls back"],
    ),
    leaves(asked(FIRST, nodes=1)),
    leaves(asked("$ip", lines=f"ip=${{ip:-{FIRST}}}\n")),
    leaves(asked("$(head -n 1 hosts || echo node-a)")),
    flags("warning", asked('"$(hostname -I)"'), lines=[3], saying=["all addresses", "awk"]),
    flags("warning", asked("$a", lines="a=`hostname -I`\n"), lines=[3], saying=["blanks"]),
    leaves(asked("$(hostname -I | awk '{print $1}')")),
    flags("note", asked("$(hostname --ip-address)"), lines=[3], saying=["127.0.1.1"]),
    flags("note", asked('$(srun -w "$head" -N1 -n1 hostname -i)'), lines=[3], saying=["several"]),
    leaves(asked("$(hostname -i)", nodes=1)),
    flags("warning", asked(OF_SRUN), lines=[3], saying=["not set in a batch script"]),
    flags(
        "warning",
        shell(f"{BATCH}export MASTER_ADDR={OF_SRUN}\nsrun python x.py\n"),
        lines=[3],
        saying=["not set in a batch script"],
    ),
    leaves(shell(f"{BATCH}srun bash -c 'export MASTER_ADDR={OF_SRUN}; python x.py'\n")),
    leaves(shell(f"{BATCH}srun bash -c 'torchrun --nnodes=4 --rdzv-endpoint={OF_SRUN}:29400 x'\n")),
    flags(
        "note",
        shell(f"export RANK=$SLURM_PROCID MASTER_ADDR={OF_SRUN}\npython x.py\n"),
        lines=[1],
        saying=["where srun was started", "login node"],
    ),
    flags(
        "note",
        python("import os\nos.environ['MASTER_ADDR'] = os.environ['SLURM_LAUNCH_NODE_IPADDR']\n"),
        lines=[2],
        saying=["where srun was started"],
    ),
)


# --- between nodes -------------------------------------------------------------------------------

AWAY = some_nodes(3, master_addr="10.9.9.9", master_origin="MASTER_ADDR")
DOCKER = on_all(
    some_nodes(3, master_addr="172.17.0.1"),
    lambda _: {"interfaces": (an_interface("docker0", "172.17.0.1", kind="bridge"),)},
)

test_check_nodes = between.table(
    "wrong-master-address",
    between.speaks(
        "warning",
        AWAY,
        saying=["the master address 10.9.9.9 belongs to none of the 3 nodes", "NAT", "hostname -I"],
    ),
    between.speaks(
        "warning",
        resolving(some_nodes(3, master_addr="head"), "node-b", "head", "10.9.9.9"),
        saying=["head is 10.9.9.9", "none of the 3 nodes"],
    ),
    between.speaks("warning", DOCKER, saying=["belongs to 3 nodes: node-a, node-b, node-c"]),
    between.silent(some_nodes(3, master_addr="10.0.0.2")),
    between.silent(some_nodes(3, rdzv_endpoint="node-a:29400")),
    between.skips(absent(AWAY, "node-d", "no route"), saying=["may be a node that did not answer"]),
    between.skips(some_nodes(3, master_addr="head"), saying=["head was not resolved"]),
    between.skips(on_node(AWAY, "node-b", interfaces=Unread(why="late")), saying=["late"]),
    between.not_applicable(some_nodes(3), saying=["no master address"]),
)
