from __future__ import annotations

from holdfast.analysis.machine import Unread
from holdfast.analysis.source.source import LintingMachine, Source, SourceKind
from holdfast.analysis.source.source import SourceSetting as Written
from holdfast.findings import Place
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import dockerfile, nccl_conf, shell
from tests.faults.machines import a_loopback, a_machine, an_interface, settings, software
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

UNPLUGGED = an_interface("ens5", "10.1.0.5", running=False, state="down")
NAMELESS = an_interface("ens6", addresses=())
HERE = (a_loopback(), an_interface("eth0"), UNPLUGGED, NAMELESS)


def nccl(value: str) -> tuple[object, ...]:
    return settings(NCCL_SOCKET_IFNAME=value)


test_check = check_table(
    "nic-name-missing",
    speaks(
        "error",
        a_machine(settings=nccl("ib0")),
        saying=[
            "NCCL_SOCKET_IFNAME=ib0 matches no interface",
            "does not fall back",
            "eth0 (running, 10.0.0.5)",
            "`export NCCL_SOCKET_IFNAME==eth0`",
            "`unset NCCL_SOCKET_IFNAME`",
        ],
    ),
    speaks(
        "warning",  # no GPU, so perhaps no NCCL
        a_machine(settings=nccl("ib0"), accelerators=()),
        saying=["if it uses NCCL (no GPU was found here)"],
    ),
    speaks("error", a_machine(settings=nccl("=eth")), saying=["matches no interface"]),
    speaks("error", a_machine(settings=nccl("=eth1,=eth0")), saying=["=eth1,=eth0 matches no"]),
    speaks("error", a_machine(settings=nccl("^lo,eth")), saying=["matches no interface"]),
    speaks(
        "error",
        a_machine(settings=settings("/etc/nccl.conf:2", NCCL_SOCKET_IFNAME="ib0")),
        saying=["remove the line at /etc/nccl.conf:2"],
        not_saying=["unset"],
    ),
    speaks(
        "error",
        a_machine(settings=nccl("ens5"), interfaces=HERE),
        saying=["selects ens5 (no carrier, or down", "NCCL skips", "ens5 (down, 10.1.0.5)"],
    ),
    speaks(
        "warning",  # an older NCCL takes it
        a_machine(settings=nccl("ens5"), interfaces=HERE, software=software(nccl="2.21.5")),
        saying=["selects ens5, which cannot carry traffic now", "from 2.28.3 on skips"],
    ),
    speaks(
        "error",
        a_machine(settings=nccl("=ens6"), interfaces=HERE),
        saying=["selects ens6 (no address)", "ens6 (running, no address)"],
    ),
    speaks(
        "error",
        a_machine(settings=nccl("ens5"), interfaces=(UNPLUGGED,)),
        saying=["or bring the interface up"],
    ),
    speaks(
        "error",
        a_machine(settings=settings(NCCL_COMM_ID="192.0.2.1:4000")),
        saying=[
            "no interface is in the subnet of 192.0.2.1",
            "No usable listening interface",
            "`unset NCCL_COMM_ID`: torch gives NCCL the address",
        ],
    ),
    speaks(
        "error",  # the bootstrap goes by NCCL_COMM_ID, data by the filter
        a_machine(settings=settings(NCCL_COMM_ID="10.0.0.9:4000", NCCL_SOCKET_IFNAME="ib0")),
        saying=["NCCL_SOCKET_IFNAME=ib0 matches no interface"],
    ),
    speaks(
        "error",
        a_machine(settings=settings(GLOO_SOCKET_IFNAME="ens6"), interfaces=HERE),
        saying=["one has no address", "Unable to find address for: ens6"],
    ),
    speaks(
        "error",
        a_machine(settings=settings(GLOO_SOCKET_IFNAME="eth0,ens9")),
        saying=["no interface is named ens9", "Unable to find address for: ens9"],
        not_saying=["GLOO_SOCKET_IFNAME==eth0"],
    ),
    speaks(
        "error",  # a prefix is enough for NCCL, not for Gloo
        a_machine(settings=settings(GLOO_SOCKET_IFNAME="eth")),
        saying=["no interface is named eth"],
    ),
    speaks(
        "warning",
        a_machine(settings=settings(GLOO_SOCKET_IFNAME="eth0,ens5"), interfaces=HERE),
        saying=["selects ens5"],
    ),
    silent(a_machine(settings=settings(NCCL_SOCKET_IFNAME="eth", GLOO_SOCKET_IFNAME="eth0,"))),
    silent(  # one that works is enough
        a_machine(
            settings=settings(NCCL_SOCKET_IFNAME="^lo", GLOO_SOCKET_IFNAME="lo"), interfaces=HERE
        )
    ),
    silent(a_machine(settings=settings(NCCL_COMM_ID="10.0.0.9:4000", GLOO_SOCKET_IFNAME="eth0"))),
    not_applicable(
        a_machine(settings=settings(NCCL_SOCKET_IFNAME="eth0", GLOO_SOCKET_IFNAME="^docker0")),
        saying=["see nic-filter-syntax"],
    ),
    not_applicable(
        a_machine(), saying=["NCCL_SOCKET_IFNAME selects no", "GLOO_SOCKET_IFNAME selects"]
    ),
    not_applicable(
        a_machine(settings=nccl("x")), saying=["NCCL_SOCKET_IFNAME selects no interface"]
    ),
    skips(
        a_machine(settings=nccl("eth0"), interfaces=Unread(why="no netlink")), saying=["no netl"]
    ),
    skips(a_machine(settings=Unread(why="no answer")), saying=["no answer"]),
)


# --- explain --------------------------------------------------------------------------

NONE = "[rank1]: NCCL WARN Bootstrap : no socket interface found"

test_explain = explain_table(
    "nic-name-missing",
    recognises(
        wreckage(NONE, settings={"NCCL_SOCKET_IFNAME": "nope0"}),
        sure=0.95,
        what="NCCL_SOCKET_IFNAME=nope0",
        victims=[1],
        saying=["NCCL_SOCKET_IFNAME=nope0 matched no interface", "ip -br address"],
    ),
    recognises(
        wreckage(NONE),
        sure=0.9,
        what="NCCL_SOCKET_IFNAME",
        saying=["NCCL found no interface to use"],
    ),
    recognises(
        wreckage(NONE, settings={"NCCL_SOCKET_IFNAME": "=eth0,=eth1"}),
        sure=0.6,
        what="=eth0,=eth1",
        saying=["matched no interface"],
    ),
    recognises(
        wreckage("NCCL WARN Socket creation failed : Address family not supported by protocol"),
        sure=0.75,
        what="NCCL_SOCKET_IFNAME",
        saying=["no interface"],
    ),
    recognises(
        wreckage(
            "NCCL WARN ncclSocketInit: connecting to address  with family 0 is neither AF_INET(2) "
            "nor AF_INET6(10)",
            settings={"NCCL_SOCKET_IFNAME": "nope0"},
        ),
        sure=0.8,
        what="NCCL_SOCKET_IFNAME=nope0",
        saying=["nope0"],
    ),
    recognises(
        wreckage(
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:84] "
            "ifa != nullptr. Unable to find address for: eth7"
        ),
        sure=0.95,
        what="GLOO_SOCKET_IFNAME=eth7",
        saying=["eth7 matched no interface"],
    ),
    recognises(
        wreckage("NCCL WARN no device found matching exactly eth7, verify NCCL_OOB_NET_IFNAME"),
        sure=0.95,
        what="NCCL_OOB_NET_IFNAME=eth7",
        saying=["eth7"],
    ),
    passes_over(
        wreckage(
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:138] "
            "rp != nullptr. Unable to find address for: node-a"
        )
    ),
    passes_over(
        wreckage(
            "[W socket.cpp:426] [c10d] The server socket cannot be initialized on [::]:29500 "
            "(errno: 97 - Address family not supported by protocol)."
        )
    ),
)

KNOWN_HERE = LintingMachine(interfaces=("lo", "eth0", "ib0"))


def from_environment(**variables: str) -> Source:
    found = [
        Written(name=n, value=v, place=Place(file="", line=i), by="environment")
        for i, (n, v) in enumerate(variables.items(), 1)
    ]
    return Source(file="", kind=SourceKind.ENVIRONMENT, settings=tuple(found), here=KNOWN_HERE)


test_lint = lint_table(
    "nic-name-missing",
    flags(
        "note",
        shell("export NCCL_SOCKET_IFNAME=ens5", here=KNOWN_HERE),
        lines=[1],
        saying=["this machine has no interface ens5", "the machine that runs the job may have it"],
    ),
    flags(
        "note",
        shell("GLOO_SOCKET_IFNAME=eth0,eth1 torchrun train.py", here=KNOWN_HERE),
        lines=[1],
        saying=["this machine has no interface eth1", "every name"],
    ),
    flags(
        "error",
        from_environment(NCCL_SOCKET_IFNAME="=eth", GLOO_SOCKET_IFNAME="eth7"),
        lines=[1, 2],
        saying=["does not fall back", "`export NCCL_SOCKET_IFNAME='=eth0'`", "`unset GLOO_"],
    ),
    flags(
        "error",
        nccl_conf("NCCL_SOCKET_IFNAME=ens5", file="/etc/nccl.conf", here=KNOWN_HERE),
        lines=[1],
        saying=["this machine has no interface ens5"],
        not_saying=["the machine that runs the job"],
    ),
    flags(  # a file of another repository
        "note",
        nccl_conf("NCCL_SOCKET_IFNAME=ens5", file="conf/nccl.conf", here=KNOWN_HERE),
        lines=[1],
        saying=["the machine that runs the job may have it"],
    ),
    leaves(dockerfile("FROM x\nENV NCCL_SOCKET_IFNAME=ens5", here=KNOWN_HERE)),
    leaves(  # jobs of other machines
        shell("#!/bin/bash\n#SBATCH -N 2\nexport NCCL_SOCKET_IFNAME=ens5", here=KNOWN_HERE)
    ),
    leaves(shell("export NCCL_SOCKET_IFNAME=ens5\ntorchrun --nnodes=2 train.py", here=KNOWN_HERE)),
    leaves(shell("export NCCL_SOCKET_IFNAME=ens5")),  # nothing is known of this machine
    leaves(shell("export NCCL_SOCKET_IFNAME=eth GLOO_SOCKET_IFNAME=ib0", here=KNOWN_HERE)),
    leaves(shell("export NCCL_SOCKET_IFNAME=ens5,ib", here=KNOWN_HERE)),
    leaves(shell("export NCCL_SOCKET_IFNAME=^ens5", here=KNOWN_HERE)),
    leaves(shell("export NCCL_SOCKET_IFNAME=$IFACE", here=KNOWN_HERE)),
    leaves(shell("export NCCL_SOCKET_IFNAME=x", here=KNOWN_HERE)),
)
