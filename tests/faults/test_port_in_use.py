from holdfast.facts import Bind, Unread
from tests.faults.machines import a_connection, a_machine, a_plan, a_port
from tests.faults.table import foresee_table, not_applicable, silent, skips, speaks

TAKEN = (Bind(family="IPv6", error="EADDRINUSE"), Bind(family="IPv4", error="EADDRINUSE"))
NAMED = a_plan(port_origin="MASTER_PORT")

test_foresee = foresee_table(
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
        "warning",  # nobody asked for this port: another launcher may well choose its own
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
    silent(a_machine()),
    skips(a_machine(port=Unread(why="no answer within 0.8 s")), saying=["no answer within 0.8 s"]),
    not_applicable(a_machine(a_plan(port=0)), saying=["picks the port itself"]),
)
