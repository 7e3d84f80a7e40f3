from __future__ import annotations

from holdfast.facts import ClockSync, Unread
from tests.faults.machines import a_machine, a_plan
from tests.faults.table import foresee_table, not_applicable, silent, skips, speaks

TWO_NODES = a_plan(min_nodes=2, max_nodes=2)
ADRIFT = ClockSync(synchronised=False, max_error=16.0)

test_foresee = foresee_table(
    "clock-skew",
    speaks(
        "warning",
        a_machine(TWO_NODES, clock=ADRIFT),
        saying=["nothing keeps the clock", "cannot be put in order", "error up to 16 s", "chronyd"],
    ),
    speaks("warning", a_machine(a_plan(max_nodes=4), clock=ADRIFT), saying=["STA_UNSYNC"]),
    silent(a_machine(TWO_NODES)),
    not_applicable(a_machine(clock=ADRIFT), saying=["same clock"]),
    skips(a_machine(TWO_NODES, clock=Unread(why="seccomp forbids adjtimex")), saying=["seccomp"]),
)
