from __future__ import annotations

import msgspec

from holdfast.analysis.machine import MachineFacts, Setting, Unread
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

TWO_NODES = a_plan(min_nodes=2, max_nodes=2)


def nccl(value: str) -> MachineFacts:
    return a_machine(TWO_NODES, settings=settings(NCCL_SOCKET_IFNAME=value))


def gloo(value: str) -> MachineFacts:
    return a_machine(settings=settings(GLOO_SOCKET_IFNAME=value))


test_check = check_table(
    "nic-filter-syntax",
    speaks(
        "warning",
        nccl("=eth0,=eth1"),
        saying=["'=eth1' cannot match any interface", "`export NCCL_SOCKET_IFNAME='=eth0,eth1'`"],
    ),
    speaks("warning", nccl("eth0, eth1"), saying=["' eth1' cannot match", "=eth0,eth1`"]),
    speaks("error", nccl("=^eth0"), saying=["'^eth0' cannot match", "NCCL finds no interface"]),
    speaks(
        "warning",  # the second `^` makes a name of it, so lo is not excluded
        nccl("^docker0,^lo"),
        saying=["'^lo' cannot match any", "'^docker0,lo'", "lo (127.0.0.1): taken"],
    ),
    speaks("warning", nccl("e"), saying=["NCCL_SOCKET_IFNAME=e is ignored", "eth0 (10.0.0.5)"]),
    speaks("warning", gloo("e"), saying=["GLOO_SOCKET_IFNAME=e is ignored", "eth0 (10.0.0.5)"]),
    speaks(
        "warning",
        msgspec.structs.replace(nccl("e"), interfaces=Unread(why="no netlink")),
        saying=["is ignored"],
    ),
    speaks(
        "warning",
        a_machine(
            settings=(
                Setting(name="NCCL_SOCKET_IFNAME ", value=" eth0", origin="/etc/nccl.conf:3"),
            )
        ),
        saying=[
            "no program reads it",
            "`NCCL_SOCKET_IFNAME=eth0` without blanks at /etc/nccl.conf:3",
        ],
    ),
    speaks(
        "error",
        gloo("^docker0"),
        saying=[
            "Gloo reads '^docker0' as the name",
            "`^` and `=` work for NCCL only",
            "will raise",
        ],
    ),
    speaks("error", gloo("=eth0"), saying=["'=eth0'"]),
    speaks("error", gloo("eth0, eth1"), saying=["' eth1'"], not_saying=["work for NCCL only"]),
    speaks("error", gloo(",eth0"), saying=["''"], not_saying=["work for NCCL only"]),
    silent(nccl("eth0")),
    silent(nccl("=eth0,eth1")),
    silent(nccl("^docker,lo")),
    silent(nccl("^l")),  # a prefix of lo excludes it too
    silent(nccl("^docker0")),  # well formed; that lo is taken says wrong-nic
    silent(gloo("eth0,eth1,")),
    silent(gloo("")),
    not_applicable(a_machine(), saying=["are not set"]),
    skips(a_machine(settings=Unread(why="no answer")), saying=["no answer"]),
)


# --- explain --------------------------------------------------------------------------

NONE = "[rank1]: NCCL WARN Bootstrap : no socket interface found"

test_explain = explain_table(
    "nic-filter-syntax",
    recognises(
        wreckage(NONE, settings={"NCCL_SOCKET_IFNAME": "eth0, eth1"}),
        sure=0.85,
        what="NCCL_SOCKET_IFNAME=eth0, eth1",
        saying=["blanks and quotes are part of a name"],
    ),
    recognises(
        wreckage("RuntimeError: ifa != nullptr. Unable to find address for: ^docker0"),
        sure=0.8,
        what="GLOO_SOCKET_IFNAME=^docker0",
        saying=["Gloo accepts only exact names"],
    ),
    passes_over(wreckage(NONE, settings={"NCCL_SOCKET_IFNAME": "nope0"})),
    passes_over(wreckage(NONE)),
    passes_over(wreckage("all is well", settings={"NCCL_SOCKET_IFNAME": "=eth0,=eth1"})),
)

test_lint = lint_table(
    "nic-filter-syntax",
    flags(
        "warning",
        shell("export NCCL_SOCKET_IFNAME==eth0,=eth1"),
        lines=[1],
        saying=["'=eth1' cannot match any interface", "`NCCL_SOCKET_IFNAME='=eth0,eth1'`"],
    ),
    flags(
        "warning",
        shell("export NCCL_SOCKET_IFNAME='^lo,^docker0'"),
        lines=[1],
        saying=["'^docker0'", "'^lo,docker0'"],
    ),
    flags(
        "warning",
        python('import os\nos.environ["NCCL_SOCKET_IFNAME"] = "eth0, eth1"'),
        lines=[2],
        saying=["' eth1'", "`NCCL_SOCKET_IFNAME=eth0,eth1`"],
    ),
    flags("warning", shell("export NCCL_SOCKET_IFNAME=e"), lines=[1], saying=["one character"]),
    flags(
        "error",
        shell("export NCCL_SOCKET_IFNAME=192.168.1.7"),
        lines=[1],
        saying=["an address", "NCCL finds no interface and fails"],
    ),
    flags("error", shell("export NCCL_SOCKET_IFNAME='eth*'"), lines=[1], saying=["patterns"]),
    flags(
        "error",
        shell("export GLOO_SOCKET_IFNAME==eth0"),
        lines=[1],
        saying=["Gloo reads '=eth0' as the name", "will raise"],
    ),
    leaves(shell("export NCCL_SOCKET_IFNAME==eth0,eth1 GLOO_SOCKET_IFNAME=eth0,eth1")),
    leaves(shell("export NCCL_SOCKET_IFNAME=^docker0,lo")),
    leaves(shell("export NCCL_SOCKET_IFNAME=^docker0")),  # wrong-nic says it
    leaves(shell("export NCCL_SOCKET_IFNAME=<interface>")),
    leaves(shell("export NCCL_SOCKET_IFNAME=$(ip -o route get 1 | cut -f5 -d' ')")),
    leaves(shell("export NCCL_SOCKET_IFNAME=")),
)
