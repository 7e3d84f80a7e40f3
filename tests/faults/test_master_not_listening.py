from __future__ import annotations

from holdfast.facts import Reach, Unread
from tests.faults.machines import a_machine, a_plan
from tests.faults.table import foresee_table, not_applicable, silent, skips, speaks

PLAN = a_plan(max_nodes=2, master_addr="10.0.0.9", master_origin="MASTER_ADDR", node_rank=1)


def reach(error: str, seconds: float = 0.5) -> Reach:
    return Reach(address="10.0.0.9", port=29500, error=error, seconds=seconds)


test_foresee = foresee_table(
    "master-not-listening",
    speaks(
        "note",
        a_machine(PLAN, master_reach=reach("ECONNREFUSED")),
        saying=["nobody listens on 10.0.0.9 port 29500 yet", "start node rank 0"],
    ),
    speaks(
        "warning",
        a_machine(PLAN, master_reach=reach("ETIMEDOUT")),
        saying=["stays silent", "0.5 s", "ping -c 3 10.0.0.9"],
    ),
    speaks(
        "warning",
        a_machine(PLAN, master_reach=reach("EHOSTUNREACH")),
        saying=["EHOSTUNREACH", "in vain", "ip route get 10.0.0.9"],
    ),
    speaks("warning", a_machine(PLAN, master_reach=reach("ENETUNREACH")), saying=["no route"]),
    speaks("warning", a_machine(PLAN, master_reach=reach("EPERM")), saying=["itself forbids"]),
    speaks("warning", a_machine(PLAN, master_reach=reach("EINVAL")), saying=["EINVAL"]),
    silent(a_machine(PLAN, master_reach=reach(""))),
    skips(a_machine(PLAN, master_reach=Unread(why="name unknown")), saying=["name unknown"]),
    not_applicable(a_machine(), saying=["this machine, or none was named"]),
)
