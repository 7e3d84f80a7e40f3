from holdfast.facts import Unread
from tests.faults.machines import a_machine, settings
from tests.faults.table import (
    foresee_table,
    passes_over,
    recognise_table,
    recognises,
    silent,
    skips,
    speaks,
)
from tests.remains.made import wreckage

test_foresee = foresee_table(
    "clocks-inconsistent",
    speaks(
        "warning",
        a_machine(settings=settings(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="0")),
        saying=["end healthy ranks", "at once", "the default is 480 s"],
    ),
    speaks(
        "warning",
        a_machine(settings=settings(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="5")),
        saying=["after 5 s without progress"],
    ),
    speaks(
        "note",  # ten minutes in milliseconds against the default eight
        a_machine(settings=settings(TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC="600000")),
        saying=["10 minutes", "the heartbeat only 8 minutes", "milliseconds"],
    ),
    speaks(
        "warning",
        a_machine(settings=settings(DEEPSPEED_TIMEOUT="1800")),
        saying=["DEEPSPEED_TIMEOUT=1800 is 1 day", "minutes", "export DEEPSPEED_TIMEOUT=30"],
    ),
    speaks(
        "warning",
        a_machine(settings=settings(DEEPSPEED_TIMEOUT="30m")),
        saying=["`import deepspeed` will fail"],
    ),
    speaks(
        "note",
        a_machine(
            settings=settings(SLURM_JOB_START_TIME="1700000000", SLURM_JOB_END_TIME="1700000300")
        ),
        saying=["Slurm ends this job after 5 minutes", "10 minutes"],
    ),
    silent(a_machine()),
    silent(a_machine(settings=settings(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="1800"))),
    silent(  # tiny, but nobody acts on it
        a_machine(
            settings=settings(
                TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="1", TORCH_NCCL_ENABLE_MONITORING="0"
            )
        )
    ),
    silent(  # longer than the default, and the heartbeat was raised with it
        a_machine(
            settings=settings(
                TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC="600000",
                TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="1200",
            )
        )
    ),
    silent(a_machine(settings=settings(DEEPSPEED_TIMEOUT="120"))),  # two hours: long, but minutes
    silent(
        a_machine(
            settings=settings(SLURM_JOB_START_TIME="1700000000", SLURM_JOB_END_TIME="1700003600")
        )
    ),
    silent(a_machine(settings=settings(SLURM_JOB_END_TIME="1700000300"))),  # half is not enough
    skips(a_machine(settings=Unread(why="not permitted")), saying=["not permitted"]),
)

TIMED_OUT = (
    "[rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=11, "
    "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)

ASKED = "ProcessGroupNCCL initialization options: size: 8, TIMEOUT(ms): 5400000, PG Name: 0"
STUCK = (
    "[rank0]: [PG 0 Rank 0] ProcessGroupNCCL's watchdog got stuck for {} seconds without making "
    "progress in monitoring enqueued collectives."
)

test_recognise = recognise_table(
    "clocks-inconsistent",
    recognises(
        wreckage(ASKED, TIMED_OUT),
        sure=0.4,
        what="10 minutes",
        saying=["1 hour", "10 minutes", "new_group(timeout=…)"],
    ),
    recognises(
        wreckage("    ddp_timeout=7200,", TIMED_OUT), sure=0.4, what="10", saying=["2 hours"]
    ),
    recognises(
        wreckage(STUCK.format(5)),
        sure=0.6,
        what="TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=5",
        saying=["after 5 s", "480 s"],
    ),
    passes_over(wreckage(STUCK.format(480))),
    passes_over(wreckage(ASKED.replace("5400000", "600000"), TIMED_OUT)),
    passes_over(wreckage(ASKED)),
    passes_over(wreckage(TIMED_OUT)),
)
