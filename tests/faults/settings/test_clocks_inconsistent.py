from __future__ import annotations

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.source.source import Flag, Launch
from holdfast.findings import Place
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults.machines import a_machine, settings, software
from tests.faults.table import (
    check_table,
    explain_table,
    flags,
    leaves,
    lint_table,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

NEWEST = msgspec.structs.replace(software(nccl="2.30.7"), torch="2.15.0")

test_check = check_table(
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
    silent(  # nothing monitors the watchdog of these groups
        a_machine(settings=settings(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="5"), software=NEWEST)
    ),
    speaks(
        "warning",
        a_machine(
            settings=settings(TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="5", TORCH_DIST_USE_NCCL2="0"),
            software=NEWEST,
        ),
        saying=["after 5 s without progress"],
    ),
    silent(  # tiny, but nothing acts on it
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

test_explain = explain_table(
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

AT = Place(file="job.sh", line=2, column=9)


def within(limit: str) -> tuple[Launch, ...]:
    """Started by a job of Slurm's that may last this long."""
    return (Launch(kind="sbatch", flags=(Flag(name="time", value=limit, place=AT),), place=AT),)


GROUPS = """
    from datetime import timedelta
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    dist.init_process_group("{backend}", timeout={timeout})
    part = {group}
"""


def groups(
    group: str = "dist.new_group([0, 1])",
    timeout: str = "timedelta(hours=2)",
    backend: str = "nccl",
) -> str:
    return GROUPS.format(backend=backend, timeout=timeout, group=group)


test_lint = lint_table(
    "clocks-inconsistent",
    flags(
        "note",
        shell(
            """
            #SBATCH --time=45
            export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=7200
            srun python x.py
            """
        ),
        lines=[2],
        saying=["2 hours", "45 minutes", "never expires"],
    ),
    leaves(
        shell(
            """
            #SBATCH --time=08:00:00
            export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=7200 DEEPSPEED_TIMEOUT=60
            srun python x.py
            """
        )
    ),
    flags(
        "warning",
        python(groups()),
        lines=[5],
        saying=["has a timeout of 10 minutes", "2 hours", "dist.new_group(…, timeout=…)"],
    ),
    flags("warning", python(groups(backend="gloo")), lines=[5], saying=["30 minutes"]),
    flags(
        "warning",
        python(groups('init_device_mesh("cuda", (2, 4))')),
        lines=[5],
        saying=["backend_override"],
    ),
    flags(
        "note",
        python(groups("dist.new_subgroups(8)", "timedelta(minutes=1)")),
        lines=[5],
        saying=["10 minutes"],
    ),
    flags(
        "note", python(groups(timeout="timedelta(seconds=patience)")), lines=[5], saying=["its own"]
    ),
    leaves(python(groups(timeout="timedelta(minutes=10)"))),
    leaves(python(groups(timeout="None"))),
    leaves(python(groups("dist.new_group([0, 1], timeout=long)"))),
    leaves(python(groups("dist.new_group([0, 1], **options)"))),
    leaves(python(groups("dist.split_group(pg_options=options)"))),
    leaves(python(groups('init_device_mesh("cuda", (8,))'))),  # the default group itself
    leaves(python(groups('init_device_mesh("cuda", shape)'))),
    leaves(
        python("import torch.distributed as dist\ndist.init_process_group()\ndist.new_group([0])")
    ),
    # --- against the scheduler ---
    flags(
        "warning",
        python(groups("1"), started_by=within("1:30:00")),
        lines=[4],
        saying=["Slurm ends this job after 1 hour", "before this timeout of 2 hours"],
    ),
    leaves(python(groups("1"), started_by=within("1-00:00:00"))),
    leaves(python(groups("1", timeout="limit"), started_by=within("10"))),
    flags(
        "note",
        shell("""
            #!/bin/bash
            #SBATCH --time=00:05:00
            srun torchrun --nproc-per-node 8 train.py
        """),
        lines=[2],
        saying=["Slurm ends this job after 5 minutes"],
    ),
    # --- variables, in whatever language ---
    flags(
        "warning",
        shell("""
            export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=0
            export DEEPSPEED_TIMEOUT=1800
            DEEPSPEED_TIMEOUT=30m deepspeed train.py
        """),
        lines=[1, 2, 3],
        saying=["end healthy ranks", "the unit is minutes", "`import deepspeed` will fail"],
    ),
    flags(
        "note",
        python("""
            import os, torch.distributed
            os.environ["TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"] = "600000"
        """),
        lines=[2],
        saying=["10 minutes for the recorder's dump"],
    ),
    leaves(
        shell("""
            export TORCH_NCCL_ENABLE_MONITORING=0
            export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1
            export DEEPSPEED_TIMEOUT=$MINUTES
            unset DEEPSPEED_TIMEOUT
        """)
    ),
)
