from __future__ import annotations

from holdfast.facts import Unread
from tests.faults.machines import a_loopback, a_machine, an_interface, settings
from tests.faults.table import foresee_table, not_applicable, silent, skips, speaks

UNPLUGGED = an_interface("ens5", "10.1.0.5", running=False, state="down")
NAMELESS = an_interface("ens6", addresses=())
HERE = (a_loopback(), an_interface("eth0"), UNPLUGGED, NAMELESS)


def nccl(value: str) -> tuple[object, ...]:
    return settings(NCCL_SOCKET_IFNAME=value)


test_foresee = foresee_table(
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
        saying=["if it uses NCCL (no GPU was seen here)"],
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
        "warning",
        a_machine(settings=nccl("ens5"), interfaces=HERE),
        saying=["names ens5, which cannot carry traffic now", "ens5 (down, 10.1.0.5)"],
    ),
    speaks(
        "warning",
        a_machine(settings=nccl("=ens6"), interfaces=HERE),
        saying=["names ens6", "ens6 (running, no address)"],
    ),
    speaks(
        "warning",
        a_machine(settings=nccl("ens5"), interfaces=(UNPLUGGED,)),
        saying=["or bring the interface up"],
    ),
    speaks(
        "error",
        a_machine(settings=settings(GLOO_SOCKET_IFNAME="eth0,ens9")),
        saying=["no interface is called ens9", "Unable to find address for: ens9"],
        not_saying=["GLOO_SOCKET_IFNAME==eth0"],
    ),
    speaks(
        "error",  # a prefix is enough for NCCL, not for Gloo
        a_machine(settings=settings(GLOO_SOCKET_IFNAME="eth")),
        saying=["no interface is called eth"],
    ),
    speaks(
        "warning",
        a_machine(settings=settings(GLOO_SOCKET_IFNAME="eth0,ens5"), interfaces=HERE),
        saying=["names ens5"],
    ),
    silent(a_machine(settings=settings(NCCL_SOCKET_IFNAME="eth", GLOO_SOCKET_IFNAME="eth0,"))),
    silent(  # one that works is enough
        a_machine(
            settings=settings(NCCL_SOCKET_IFNAME="^lo", GLOO_SOCKET_IFNAME="lo"), interfaces=HERE
        )
    ),
    silent(  # malformed: nic-filter-syntax has the words
        a_machine(settings=settings(NCCL_SOCKET_IFNAME="eth0", GLOO_SOCKET_IFNAME="^docker0"))
    ),
    not_applicable(a_machine(), saying=["NCCL_SOCKET_IFNAME names no", "GLOO_SOCKET_IFNAME names"]),
    not_applicable(a_machine(settings=nccl("x")), saying=["NCCL_SOCKET_IFNAME names no interface"]),
    skips(
        a_machine(settings=nccl("eth0"), interfaces=Unread(why="no netlink")), saying=["no netl"]
    ),
    skips(a_machine(settings=Unread(why="no answer")), saying=["no answer"]),
)
