from holdfast.facts import Reach, Unread
from tests.faults.machines import a_machine
from tests.faults.table import foresee_table, not_applicable, silent, skips, speaks
from tests.smoke.smokes import a_smoke, error, exit_of, late, started, up_to, verdict

DROPPED = (Reach(address="127.0.0.1", port=1, error="ETIMEDOUT", seconds=0.5),)
GONE = verdict([*up_to("start", (0, 1, 3)), started(2), exit_of(2, "start", 0)])
STOPPED = verdict([*up_to("start"), late(2, "store", "T")])
TAKEN = verdict([*up_to("start"), error(0, "store", "name: EADDRINUSE")])

test_foresee = foresee_table(
    "ranks-missing",
    speaks(
        "error",
        a_machine(smoke=GONE),
        saying=[
            "missed a rank in stage 'start'",
            "rank 2 (pid 102) ended with exit code 0",
            "ranks 0-1,3 are not to blame",
            "[rank 2/4] pid 102 finished no stage and ended with exit code 0",
        ],
    ),
    speaks("error", a_machine(smoke=STOPPED), saying=["rank 2 (pid 102) does not run at all"]),
    silent(a_machine(smoke=a_smoke())),
    silent(a_machine(smoke=TAKEN)),  # it failed, but all ranks were there
    skips(a_machine(smoke=verdict([], loopback=DROPPED)), saying=["ended at stage 'loopback'"]),
    skips(a_machine(smoke=Unread(why="torch is broken")), saying=["torch is broken"]),
    not_applicable(a_machine(), saying=["not asked for: add --smoke"]),
)
