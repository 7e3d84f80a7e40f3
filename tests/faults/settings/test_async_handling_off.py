import msgspec

from holdfast.analysis.machine import Unread, known
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults.machines import a_machine, settings
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

OLD_TORCH = msgspec.structs.replace(known(a_machine().software), torch="2.7.1")

test_check = check_table(
    "async-handling-off",
    speaks(
        "warning",
        a_machine(settings=settings(TORCH_NCCL_ASYNC_ERROR_HANDLING="0")),
        saying=["hangs past its timeout", "`unset TORCH_NCCL_ASYNC_ERROR_HANDLING`"],
    ),
    speaks(
        "warning",
        a_machine(
            settings=settings(TORCH_NCCL_ASYNC_ERROR_HANDLING="0", TORCH_NCCL_BLOCKING_WAIT="0")
        ),
        saying=["TORCH_NCCL_ASYNC_ERROR_HANDLING=0"],
    ),
    speaks(
        "note",
        a_machine(settings=settings(NCCL_ASYNC_ERROR_HANDLING="0")),
        saying=["except under torchrun"],
    ),
    silent(a_machine()),
    silent(a_machine(settings=settings(TORCH_NCCL_ASYNC_ERROR_HANDLING="1"))),
    silent(  # the new spelling wins
        a_machine(
            settings=settings(TORCH_NCCL_ASYNC_ERROR_HANDLING="3", NCCL_ASYNC_ERROR_HANDLING="0")
        )
    ),
    speaks(
        "warning",
        a_machine(
            settings=settings(TORCH_NCCL_ASYNC_ERROR_HANDLING="0", NCCL_BLOCKING_WAIT="true")
        ),
        saying=["without a timeout", "unset NCCL_BLOCKING_WAIT"],
    ),
    speaks(
        "note",
        a_machine(settings=settings(TORCH_NCCL_BLOCKING_WAIT="1"), software=OLD_TORCH),
        saying=["block the CPU"],
    ),
    silent(a_machine(settings=settings(TORCH_NCCL_BLOCKING_WAIT="0"))),
    silent(  # torch does not see what an nccl.conf holds
        a_machine(settings=settings("/etc/nccl.conf:1", TORCH_NCCL_ASYNC_ERROR_HANDLING="0"))
    ),
    skips(a_machine(settings=Unread(why="not permitted")), saying=["not permitted"]),
)

TIMED_OUT = (
    "[rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=11, "
    "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)

OFF = (
    "ProcessGroupNCCL environments: TORCH_NCCL_ASYNC_ERROR_HANDLING: 0, TORCH_NCCL_BLOCKING_WAIT: 0"
)
TAKEN_DOWN = "[rank1]: To avoid data inconsistency, we are taking the entire process down."

test_explain = explain_table(
    "async-handling-off",
    recognises(
        wreckage(OFF, TIMED_OUT),
        sure=0.45,
        what="TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
        saying=["made torch ignore the timeout", "unset TORCH_NCCL_ASYNC_ERROR_HANDLING"],
    ),
    recognises(
        wreckage("NCCL_ASYNC_ERROR_HANDLING: 0", TIMED_OUT),
        sure=0.45,
        what="NCCL_ASYNC_ERROR_HANDLING=0",
        saying=["unset"],
    ),
    passes_over(wreckage(OFF)),
    passes_over(wreckage(OFF, TIMED_OUT, TAKEN_DOWN)),
    passes_over(wreckage(OFF.replace("WAIT: 0", "WAIT: 1"), TIMED_OUT)),
    passes_over(wreckage(OFF.replace("HANDLING: 0", "HANDLING: 3"), TIMED_OUT)),
)

test_lint = lint_table(
    "async-handling-off",
    flags(
        "warning",
        shell("export TORCH_NCCL_ASYNC_ERROR_HANDLING=0"),
        lines=[1],
        saying=["hangs past its timeout", "remove TORCH_NCCL_ASYNC_ERROR_HANDLING"],
    ),
    flags(
        "warning",
        python('import os\nos.environ.update(TORCH_NCCL_ASYNC_ERROR_HANDLING="0")'),
        lines=[2],
        saying=["init_process_group(timeout=…)"],
    ),
    flags(
        "note",
        shell("NCCL_ASYNC_ERROR_HANDLING=0 mpirun -np 8 python train.py"),
        lines=[1],
        saying=["except under torchrun"],
    ),
    flags(
        "warning",
        shell("export TORCH_NCCL_BLOCKING_WAIT=1"),
        lines=[1],
        saying=["without a timeout", "remove TORCH_NCCL_BLOCKING_WAIT", "work.wait(timedelta"],
    ),
    flags(
        "note",
        python('import os\nos.environ["TORCH_NCCL_BLOCKING_WAIT"] = "1"', torch="2.7.0"),
        lines=[2],
        saying=["block the CPU", "switches async error handling off", "meant for debugging"],
    ),
    flags(  # one word for both
        "warning",
        shell("export TORCH_NCCL_ASYNC_ERROR_HANDLING=0\nexport NCCL_BLOCKING_WAIT=1"),
        lines=[2],
        saying=["NCCL_BLOCKING_WAIT=1"],
    ),
    leaves(shell("export TORCH_NCCL_ASYNC_ERROR_HANDLING=3 TORCH_NCCL_BLOCKING_WAIT=0")),
    leaves(shell("export TORCH_NCCL_ASYNC_ERROR_HANDLING=0 TORCH_NCCL_BLOCKING_WAIT=$WAIT")),
    leaves(shell("export TORCH_NCCL_ASYNC_ERROR_HANDLING=${HANDLING}")),
    flags(
        "error",
        shell("export TORCH_NCCL_ASYNC_ERROR_HANDLING=true\nexport NCCL_BLOCKING_WAIT=on"),
        lines=[1, 2],
        saying=["torch accepts a number, 0 to 3", "torch accepts 1 or 0", "Invalid value"],
    ),
    leaves(shell("TORCH_NCCL_ASYNC_ERROR_HANDLING=0")),
    leaves(shell("unset TORCH_NCCL_ASYNC_ERROR_HANDLING")),
)
