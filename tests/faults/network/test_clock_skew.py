from __future__ import annotations

from holdfast.analysis.machine import ClockSync, Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.machines import a_machine, a_plan
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

TWO_NODES = a_plan(min_nodes=2, max_nodes=2)
ADRIFT = ClockSync(synchronised=False, max_error=16.0)

test_check = check_table(
    "clock-skew",
    speaks(
        "warning",
        a_machine(TWO_NODES, clock=ADRIFT),
        saying=["is not synchronised", "cannot be put in order", "error up to 16 s", "chronyd"],
    ),
    speaks("warning", a_machine(a_plan(max_nodes=4), clock=ADRIFT), saying=["STA_UNSYNC"]),
    silent(a_machine(TWO_NODES)),
    not_applicable(a_machine(clock=ADRIFT), saying=["same clock"]),
    skips(a_machine(TWO_NODES, clock=Unread(why="seccomp forbids adjtimex")), saying=["seccomp"]),
)


# --- explain --------------------------------------------------------------------------

test_explain = explain_table(
    "clock-skew",
    recognises(
        wreckage(
            "botocore.exceptions.ClientError: An error occurred (RequestTimeTooSkewed) when "
            "calling the PutObject operation"
        ),
        sure=0.9,
        what="the clock",
        saying=["a service rejected its requests"],
    ),
    recognises(  # AWS signs requests with a time
        wreckage(
            "botocore.exceptions.ClientError: An error occurred (InvalidSignatureException): "
            "Signature expired: 20240101T000000Z is now earlier than 20240101T001500Z"
        ),
        sure=0.9,
        what="the clock",
        saying=["a service rejected its requests"],
    ),
    recognises(
        wreckage("chronyd[812]: System clock wrong by 84.213811 seconds"),
        sure=0.35,
        what="the clock",
        saying=["wrong by 84.213811 s"],
    ),
    passes_over(wreckage("chronyd[812]: Selected source 192.0.2.1")),
)
