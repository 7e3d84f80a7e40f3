from holdfast.analysis.machine import Bind, Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.machines import a_connection, a_machine, a_plan, a_port
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

TAKEN = (Bind(family="IPv6", error="EADDRINUSE"), Bind(family="IPv4", error="EADDRINUSE"))
NAMED = a_plan(port_origin="MASTER_PORT")

test_check = check_table(
    "port-in-use",
    speaks(
        "error",
        a_machine(NAMED, port=a_port(binds=TAKEN, listeners=(a_connection(),))),
        saying=[
            "port 29500 is taken",
            "pid 4711 `python train.py`",
            "user kim",
            "up 2 hours",
            "given by MASTER_PORT",
            "stop pid 4711",
        ],
    ),
    speaks(
        "warning",  # no setting names this port: another launcher may well choose its own
        a_machine(port=a_port(binds=TAKEN, listeners=(a_connection(),))),
        saying=["torchrun's default"],
    ),
    speaks(
        "error",
        a_machine(
            NAMED,
            port=a_port(
                binds=TAKEN,
                listeners=(a_connection(owner=Unread(why="not permitted"), user="ann"),),
            ),
        ),
        saying=["a process of user ann, pid not visible (not permitted)"],
        not_saying=["stop pid"],
    ),
    speaks(
        "note",
        a_machine(
            NAMED,
            port=a_port(
                binds=(Bind(family="IPv6", error="EADDRINUSE"), Bind(family="IPv4", error="")),
                listeners=(a_connection(local="[::1]:29500"),),
            ),
        ),
        saying=["can still bind beside it"],
    ),
    # typed behind `holdfast run`, which needs no port at all
    speaks(
        "error",
        a_machine(
            a_plan(port_origin="--master-port"),
            port=a_port(binds=TAKEN, listeners=(a_connection(),)),
        ),
        saying=["given by --master-port", "leave `--master-port` out"],
        not_saying=["torchrun"],
    ),
    silent(a_machine()),
    skips(a_machine(port=Unread(why="no answer within 0.8 s")), saying=["no answer within 0.8 s"]),
    not_applicable(a_machine(a_plan(port=0)), saying=["picks the port itself"]),
)


# --- explain --------------------------------------------------------------------------

test_explain = explain_table(
    "port-in-use",
    recognises(
        wreckage("zmq.error.ZMQError: Address already in use (addr='tcp://0.0.0.0:5555')"),
        sure=0.93,
        saying=["another process already did"],
    ),
    recognises(  # the reason is cut off
        wreckage(
            "[E socket.cpp:435] [c10d] The server socket has failed to listen on any local "
            "network address."
        ),
        sure=0.5,
        saying=["another process already did"],
    ),
    recognises(
        wreckage(
            "[rank0]: torch.distributed.DistNetworkError: The server socket has failed to listen "
            "on any local network address. port: 29511, useIpv6: false, code: -98, name: "
            "EADDRINUSE, message: address already in use"
        ),
        sure=0.93,
        what="port 29511",  # the rank that met it is no culprit
        saying=["rank 0 could not listen on port 29511", "ss -ltnp 'sport = :29511'"],
    ),
    recognises(
        wreckage(
            "RuntimeError: The server socket has failed to listen on any local network address. "
            "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in "
            "use). The server socket has failed to bind to ?UNKNOWN? (errno: 98 - Address already "
            "in use)."
        ),
        sure=0.93,
        what="port 29500",
        saying=["port 29500"],
    ),
    recognises(
        wreckage("RuntimeError: Address already in use"),  # torch before 1.11 names no port
        sure=0.93,
        what="the master port",
        saying=["could not listen on its port"],
    ),
    recognises(
        wreckage("OSError: [Errno 98] Address already in use"),
        sure=0.93,
        what="the master port",
        saying=["could not listen"],
    ),
    recognises(
        wreckage(
            "ConnectionError: Tried to launch distributed communication on port `29500`, but "
            "another process is utilizing it. Please specify a different port"
        ),
        sure=0.93,
        what="port 29500",
        saying=["port 29500"],
    ),
    recognises(
        wreckage(  # torchrun's agent may still have joined as a client
            "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29400 (errno: "
            "98 - Address already in use)."
        ),
        sure=0.7,
        what="port 29400",
        saying=["port 29400"],
    ),
    passes_over(
        wreckage(
            "[W socket.cpp:426] [c10d] The server socket cannot be initialized on [::]:29500 "
            "(errno: 97 - Address family not supported by protocol)."
        )
    ),
    passes_over(
        wreckage(
            "torch.distributed.DistNetworkError: The server socket has failed to bind. port: 80, "
            "useIpv6: false, code: -13, name: EACCES, message: permission denied"
        )
    ),
)
