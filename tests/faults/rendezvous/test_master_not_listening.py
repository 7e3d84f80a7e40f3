from __future__ import annotations

import signal
from typing import Any

from holdfast.analysis.machine import Reach, Unread
from holdfast.analysis.scene.scene import RankView
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.joiners import CONNECTING, GIVEN, gave_up, joiner, late, starting
from tests.faults.machines import a_machine, a_plan
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
    silent,
    skips,
    speaks,
)
from tests.run.scenes import NOW, a_rank, a_scene, an_activity, ended, words

PLAN = a_plan(max_nodes=2, master_addr="10.0.0.9", master_origin="MASTER_ADDR", node_rank=1)


def reach(error: str, seconds: float = 0.5) -> Reach:
    return Reach(address="10.0.0.9", port=29500, error=error, seconds=seconds)


test_check = check_table(
    "master-not-listening",
    speaks(
        "note",
        a_machine(PLAN, master_reach=reach("ECONNREFUSED")),
        saying=["nothing listens on 10.0.0.9 port 29500 yet", "start node rank 0"],
    ),
    speaks(
        "warning",
        a_machine(PLAN, master_reach=reach("ETIMEDOUT")),
        saying=["does not answer", "0.5 s", "ping -c 3 10.0.0.9"],
    ),
    speaks(
        "warning",
        a_machine(PLAN, master_reach=reach("EHOSTUNREACH")),
        saying=["EHOSTUNREACH", "and then fails", "ip route get 10.0.0.9"],
    ),
    speaks("warning", a_machine(PLAN, master_reach=reach("ENETUNREACH")), saying=["no route"]),
    speaks(
        "warning", a_machine(PLAN, master_reach=reach("EPERM")), saying=["on this machine forbids"]
    ),
    speaks("warning", a_machine(PLAN, master_reach=reach("EINVAL")), saying=["EINVAL"]),
    silent(a_machine(PLAN, master_reach=reach(""))),
    skips(a_machine(PLAN, master_reach=Unread(why="name unknown")), saying=["name unknown"]),
    not_applicable(a_machine(), saying=["this machine, or no master is set"]),
)


WRONG = "127.0.0.1:29500"
TIMED_OUT = (
    "The client socket has timed out after 5000ms while trying to connect to (127.0.0.1, 29500)."
)
REFUSED = (
    "The client socket has failed to connect to any network address of (10.0.0.9, 29500). "
    "The client socket has failed to connect to 10.0.0.9:29500 (errno: 111 - Connection refused)."
)


def caller(given: int, store: str = WRONG, **claim: Any) -> RankView:
    return joiner(given, view={"stack": CONNECTING}, store=store, **claim)


test_run = run_table(
    "master-not-listening",
    notices(
        starting(caller(0), caller(1)),
        ranks=[0, 1],
        victims=[],
        certain=False,
        saying=[
            "ranks 0-1 have tried for 20.0 s to connect to a store at 127.0.0.1:29500",
            "no rank will ever serve one there: the launcher's store is at 127.0.0.1:29400",
            "remove MASTER_ADDR, MASTER_PORT and init_method from the script",
        ],
    ),
    notices(
        starting(joiner(0), caller(1, "10.0.0.9:29500")),
        ranks=[1],
        certain=False,
        saying=["rank 1 (pid 4001) has tried", "not the host that the launcher gave"],
    ),
    # the script serves its own store, and the rank that will is not there yet
    notices(
        starting(late(0), caller(1, agent_store=False)),
        ranks=[0],
        victims=[1],
        certain=False,
        saying=[
            "not up yet: rank 0, which serves it, has not reached init_process_group",
            "py-spy dump --pid 4000",
        ],
    ),
    notices(
        starting(joiner(0, agent_store=False), caller(1, agent_store=False)),
        ranks=[1],
        certain=False,
        saying=["no rank of this job serves one there"],
    ),
    notices(
        starting(
            gave_up(0, "DistNetworkError", TIMED_OUT, store=WRONG),
            gave_up(1, "DistNetworkError", TIMED_OUT, store=WRONG),
        ),
        ranks=[0, 1],
        victims=[],
        certain=True,
        saying=[
            "ranks 0-1 could not reach the store",
            "no rank will ever serve",
            "(127.0.0.1, 29500)",
        ],
    ),
    # the other one has not given up yet, but calls there as well
    notices(
        starting(caller(0), gave_up(1, "DistNetworkError", TIMED_OUT, store=WRONG)),
        ranks=[0, 1],
        victims=[],
        certain=True,
        saying=["rank 1 could not reach the store"],
    ),
    # these words are no echo to `consequences`
    notices(
        starting(gave_up(1, "DistNetworkError", REFUSED, store="10.0.0.9:29500"), joiner(0)),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=["not the host that the launcher gave", "Connection refused"],
    ),
    notices(
        starting(late(0), gave_up(1, "DistNetworkError", TIMED_OUT, agent_store=False)),
        ranks=[0],
        victims=[1],
        certain=True,
        saying=["rank 0, which serves it, has not reached init_process_group"],
    ),
    notices(
        starting(joiner(0), gave_up(1, "DistNetworkError", TIMED_OUT)),
        ranks=[],
        certain=True,
        saying=["no answer at the address that the launcher gave"],
    ),
    overlooks(a_scene()),
    overlooks(starting(joiner(0), joiner(1))),
    overlooks(starting(caller(0, GIVEN), caller(1, "localhost:29400"))),
    overlooks(starting(caller(0, at=NOW - 2), caller(1, at=NOW - 2))),
    # it has reached the store and waits for the others
    overlooks(starting(joiner(0, store=WRONG), joiner(1, store=WRONG))),
    # rank 0 serves it and waits for clients; one of them is on its way
    overlooks(starting(caller(0, agent_store=False), caller(1, agent_store=False))),
    overlooks(starting(caller(0, agent_store=False), caller(1, "localhost:29500"))),
    # others end first, and explain it
    overlooks(
        starting(
            ended(0, -signal.SIGKILL, at=NOW - 9),
            gave_up(1, "DistNetworkError", TIMED_OUT, store=WRONG),
        )
    ),
    overlooks(
        starting(
            late(0, activity=an_activity(state="T")),
            gave_up(1, "DistNetworkError", TIMED_OUT, agent_store=False),
        )
    ),
    # a service of the user's, before or after the group has formed
    overlooks(starting(a_rank(0), a_rank(1, words=words("ConnectionRefusedError", "[Errno 111]")))),
    overlooks(starting(joiner(0), gave_up(1, "ConnectionRefusedError", "Connection refused"))),
    overlooks(starting(a_rank(0), a_rank(1, words=words("DistNetworkError", TIMED_OUT)))),
)


# --- explain --------------------------------------------------------------------------

TIMED_OUT = (
    "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while "
    "trying to connect to (192.0.2.7, 29500)."
)
ABSENT = "[I socket.cpp:522] No socket on (192.0.2.7, 29500) is listening yet, will retry."

test_explain = explain_table(
    "master-not-listening",
    recognises(  # torch prints some of the addresses that it tried wrongly
        wreckage(
            "[W1116 13:27:09.6 socket.cpp:764] [c10d] The client socket has failed to connect to "
            "[100::]:42573 (errno: 111 - Connection refused).",
            "[E1116 13:27:09.6 socket.cpp:818] [c10d] The client socket has failed to connect to "
            "any network address of (192.0.2.7, 29500).",
        ),
        sure=0.6,
        what="192.0.2.7 port 29500",
        saying=["no process served the store at 192.0.2.7 port 29500"],
    ),
    recognises(
        wreckage(f"[rank1]: {ABSENT}", f"[rank1]: {TIMED_OUT}"),
        sure=0.6,
        what="192.0.2.7 port 29500",
        victims=[1],
        saying=["no process served the store at 192.0.2.7 port 29500", "start rank 0's node first"],
    ),
    recognises(
        wreckage(f"[rank1]: {TIMED_OUT}"),
        sure=0.5,
        what="192.0.2.7",
        saying=["no process served the store"],
    ),
    recognises(
        wreckage("RuntimeError: Connection refused"),  # torch 1.x
        sure=0.6,
        what="the store of rank 0",
        saying=["an address that the log does not show"],
    ),
    recognises(
        wreckage("[rank0]: RuntimeError: Address already in use", f"[rank1]: {TIMED_OUT}"),
        sure=0.3,  # rank 0 tells why it did not serve
        what="192.0.2.7",
        saying=["errors of other processes"],
    ),
    recognises(
        wreckage(
            "[W socket.cpp:436] [c10d] The server socket on [node-a]:29500 has timed out, will "
            "retry."
        ),
        sure=0.4,
        what="node-a",
        saying=["node-a port 29500"],
    ),
    passes_over(
        wreckage(
            "[W socket.cpp:697] [c10d] The IPv6 network addresses of (node-a, 29500) cannot be "
            "retrieved (gai error: -2 - Name or service not known).",
            "The client socket has timed out after 60s while trying to connect to (node-a, 29500).",
        )
    ),
    passes_over(wreckage("NCCL INFO Bootstrap: Using eth0:192.0.2.2<0>")),
)
