from __future__ import annotations

from typing import Any

from holdfast.facts import Bind, Connection, PortRanges, Unread
from tests.faults.machines import a_connection, a_machine, a_plan, a_port, a_process
from tests.faults.table import (
    foresee_table,
    not_applicable,
    passes_over,
    recognise_table,
    recognises,
    silent,
    skips,
    speaks,
)
from tests.remains.made import wreckage

TAKEN = (Bind(family="IPv6", error="EADDRINUSE"), Bind(family="IPv4", error="EADDRINUSE"))
HIGH = a_plan(port=40123, port_origin="MASTER_PORT")
NAMED = a_plan(port_origin="--port")


def ranges(**changes: Any) -> PortRanges:
    values: dict[str, Any] = {
        "ephemeral_low": 32768,
        "ephemeral_high": 60999,
        "reserved": (),
        "first_unprivileged": 1024,
    }
    return PortRanges(**(values | changes))


def time_wait(seconds: float) -> Connection:
    return a_connection(
        local="127.0.0.1:29500",
        peer="127.0.0.1:443",
        state="TIME_WAIT",
        seconds_left=seconds,
        user="",
        owner=None,
    )


OUTGOING = a_connection(
    local="10.0.0.5:29500",
    peer="10.0.0.9:443",
    state="ESTABLISHED",
    owner=a_process(pid=812, command="curl example.org"),
)

test_foresee = foresee_table(
    "port-ephemeral",
    speaks(
        "warning",
        a_machine(HIGH, port=a_port(port=40123)),
        saying=["40123", "32768-60999", "`export MASTER_PORT=29600`", "ip_local_reserved_ports"],
    ),
    speaks(
        "warning",  # a range that leaves no room: the only advice is to reserve the port
        a_machine(
            NAMED,
            port_ranges=ranges(ephemeral_low=1024, ephemeral_high=65535, reserved=((8080, 8081),)),
        ),
        saying=["ip_local_reserved_ports=8080-8081,29500"],
        not_saying=["--master-port"],
    ),
    speaks(
        "error",
        a_machine(NAMED, port=a_port(binds=TAKEN, others=(OUTGOING,))),
        saying=["held by an outgoing connection", "pid 812 `curl example.org`", "10.0.0.9:443"],
        not_saying=["wait"],
    ),
    speaks(
        "error",
        a_machine(NAMED, port=a_port(binds=TAKEN, others=(time_wait(12.1), time_wait(40.2)))),
        saying=["TIME_WAIT for another 41 s", "wait 41 s, or choose another port", "--master-port"],
    ),
    speaks(
        "error",
        a_machine(
            NAMED,
            port=a_port(
                binds=TAKEN,
                others=(a_connection(state="FIN_WAIT2", owner=Unread(why="not permitted")),),
            ),
        ),
        saying=["pid not visible (not permitted)"],
    ),
    speaks(
        "warning",  # nobody named this port
        a_machine(port=a_port(binds=TAKEN, others=(time_wait(5.0),))),
        saying=["another 5 s"],
    ),
    speaks(
        "error",
        a_machine(NAMED, port=a_port(binds=TAKEN)),
        saying=["no socket on it is listed", "without listening", "IPv6: EADDRINUSE"],
    ),
    speaks(
        "note",
        a_machine(
            NAMED,
            port=a_port(binds=(TAKEN[0], Bind(family="IPv4", error="")), others=(time_wait(9.0),)),
        ),
        saying=["one address family only"],
    ),
    silent(a_machine()),
    # TIME_WAIT of the server's side: the bind works
    silent(a_machine(NAMED, port=a_port(others=(time_wait(50.0),)))),
    # a listener is port-in-use's business
    silent(a_machine(NAMED, port=a_port(binds=TAKEN, listeners=(a_connection(),)))),
    # in the range, but reserved; just below the range; just above it
    silent(a_machine(HIGH, port_ranges=ranges(reserved=((40000, 40200),)))),
    silent(a_machine(a_plan(port=32767))),
    silent(a_machine(a_plan(port=61000))),
    skips(a_machine(port_ranges=Unread(why="no /proc")), saying=["no /proc"]),
    skips(a_machine(port=Unread(why="no answer")), saying=["no answer"]),
    not_applicable(a_machine(a_plan(port=0)), saying=["picks the port itself"]),
)


# --- recognise -----------------------------------------------------------------------

test_recognise = recognise_table(
    "port-ephemeral",
    recognises(
        wreckage(
            "RuntimeError: The server socket has failed to listen on any local network address. "
            "The server socket has failed to bind to [::]:45123 (errno: 98 - Address already in "
            "use)."
        ),
        sure=0.4,
        what="port 45123",
        saying=["outgoing connections", "ss -tano 'sport = :45123'"],
    ),
    passes_over(
        wreckage(
            "[W socket.cpp:426] [c10d] The server socket has failed to bind to [::]:29500 (errno: "
            "98 - Address already in use)."
        )
    ),
    passes_over(wreckage("RuntimeError: Address already in use")),
)
