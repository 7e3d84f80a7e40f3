from __future__ import annotations

from typing import Any

from holdfast.analysis.machine import Bind, PortFacts, StoreAnswer, Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.machines import a_connection, a_machine, a_plan, a_port, a_process
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

NAMED = a_plan(port_origin="--port")


def a_store(**changes: Any) -> PortFacts:
    """A port on which another job's store answers."""
    taken = tuple(Bind(family=family, error="EADDRINUSE") for family in ("IPv6", "IPv4"))
    store = StoreAnswer(is_store=True, keys=17)
    return a_port(**({"binds": taken, "listeners": (a_connection(),), "store": store} | changes))


test_check = check_table(
    "foreign-job-on-port",
    speaks(
        "error",
        a_machine(NAMED, port=a_store()),
        saying=[
            "another job's store",
            "pid 4711 `python train.py`",
            "keys it holds: 17",
            "--standalone",
        ],
    ),
    speaks(
        "error",
        a_machine(a_plan(port_origin="MASTER_PORT", max_nodes=2), port=a_store()),
        saying=["`export MASTER_PORT=29600` on every node"],
        not_saying=["--standalone"],
    ),
    speaks("warning", a_machine(port=a_store()), saying=["port 29500"]),
    speaks(
        "error",  # the launcher we were told of is another one
        a_machine(a_plan(port_origin="--port", launcher_pid=99), port=a_store()),
        saying=["join that job"],
    ),
    speaks(
        "note",  # asked from inside a rank: most likely its own store
        a_machine(a_plan(environment={"TORCHELASTIC_RUN_ID": "r1"}), port=a_store()),
        saying=["inside a torchrun job"],
    ),
    silent(a_machine()),
    silent(a_machine(NAMED, port=a_store(store=StoreAnswer(is_store=False, keys=None)))),
    silent(a_machine(a_plan(port_origin="--port", launcher_pid=4711), port=a_store())),
    silent(
        a_machine(
            a_plan(port_origin="--port", launcher_pid=4700),
            port=a_store(listeners=(a_connection(owner=a_process(parent=4700)),)),
        )
    ),
    skips(a_machine(port=a_store(store=Unread(why="it said nothing"))), saying=["it said nothing"]),
    not_applicable(a_machine(a_plan(port=0)), saying=["picks the port itself"]),
)


# --- explain --------------------------------------------------------------------------

test_explain = explain_table(
    "foreign-job-on-port",
    recognises(
        wreckage(
            "NCCL WARN socketFinalizeAccept from 192.0.2.9<40001>: wrong type 4 != 3",
        ),
        sure=0.4,
        what="192.0.2.9",
        saying=["is not a rank of this job", "NCCL_SOCKET_IFNAME"],
    ),
    recognises(
        wreckage(
            "NCCL WARN socketFinalizeAccept: wrong magic 47 != 48",
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        ),
        sure=0.2,
        what="the process that connected",
        saying=["port scanner"],
    ),
    recognises(
        wreckage(
            "[rank1]: torch.distributed.DistNetworkError: Ping failed, invalid value returned from "
            "server. Expected: 4711, Got: 1347703880"
        ),
        sure=0.7,
        what="the master port",
        saying=["does not belong to this job"],
    ),
    recognises(
        wreckage(
            "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: "
            "98 - Address already in use)."
        ),
        sure=0.25,
        what="port 29500",
        saying=["the default of every launcher"],
    ),
    passes_over(wreckage("RuntimeError: Address already in use")),
)
