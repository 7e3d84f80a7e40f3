from holdfast.analysis.machine import Reach, Unread
from holdfast.check.smoke.stages import Record
from tests.analysis.logs.patterns.made import wreckage
from tests.check.smoke.smokes import a_smoke, error, exit_of, up_to, verdict
from tests.faults.machines import a_machine
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

TAKEN = verdict([*up_to("start"), error(0, "store", "DistNetworkError: name: EADDRINUSE")])
REFUSED = verdict([*up_to("store"), error(1, "gloo", "SO_ERROR: Connection refused")])
STRANGE = verdict([*up_to("store"), error(1, "gloo", "RuntimeError: never seen before")])
WRONG = verdict(
    [
        *up_to("gloo"),
        Record(rank=1, kind="rung", stage="gloo", size=1024, correct=False, text="element 7: 1"),
    ]
)
DROPPED = verdict(
    [], loopback=(Reach(address="127.0.0.1", port=1, error="ETIMEDOUT", seconds=0.5),)
)
MISSING = verdict([*up_to("store"), exit_of(2, "gloo", -9)])

test_check = check_table(
    "group-does-not-form",
    speaks(
        "error",
        a_machine(smoke=TAKEN),
        saying=[
            "4 ranks on this machine failed at stage 'store'",
            "another program holds the port (EADDRINUSE)",
            "holdfast explain port-in-use",
            "stage 'start': ok",
            "rank 0: DistNetworkError",
        ],
        not_saying=["rank 1:"],
    ),
    speaks("error", a_machine(smoke=REFUSED), saying=["stage 'gloo'", "nft list ruleset"]),
    speaks("error", a_machine(smoke=STRANGE), saying=["never seen before", "NCCL_DEBUG=INFO"]),
    speaks("error", a_machine(smoke=WRONG), saying=["wrong sum on rank 1", "do not train"]),
    speaks("error", a_machine(smoke=DROPPED), saying=["stage 'loopback'", "dropped"]),
    silent(a_machine(smoke=a_smoke())),
    skips(a_machine(smoke=MISSING), saying=["see ranks-missing"]),
    skips(a_machine(smoke=Unread(why="torch is broken")), saying=["torch is broken"]),
    not_applicable(a_machine(), saying=["not asked for: add --smoke"]),
)


# --- explain --------------------------------------------------------------------------

SYSTEM_ERROR = (
    "[rank1]: RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:784, unhandled system error, NCCL "
    "version 2.7.8"
)

test_explain = explain_table(
    "group-does-not-form",
    recognises(
        wreckage(SYSTEM_ERROR),
        sure=0.25,
        rank=1,
        saying=["unhandled system error", "NCCL_DEBUG=INFO"],
    ),
    recognises(
        wreckage("[rank1]: RuntimeError: Interrupted system call"),
        sure=0.3,
        rank=1,
        saying=["a signal interrupted the process"],
    ),
    passes_over(
        wreckage(SYSTEM_ERROR, "[rank1]: NCCL WARN Bootstrap : no socket interface found"),
    ),
    passes_over(
        wreckage(
            SYSTEM_ERROR,
            "[rank1]: NCCL WARN Net : Connect to 192.0.2.7<43210> failed : No route to host",
        ),
    ),
)
