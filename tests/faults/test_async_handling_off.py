from holdfast.facts import Unread
from tests.faults.machines import a_machine, settings
from tests.faults.table import foresee_table, silent, skips, speaks

test_foresee = foresee_table(
    "async-handling-off",
    speaks(
        "warning",
        a_machine(settings=settings(TORCH_NCCL_ASYNC_ERROR_HANDLING="0")),
        saying=["hangs on after its timeout", "`unset TORCH_NCCL_ASYNC_ERROR_HANDLING`"],
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
    silent(
        a_machine(settings=settings(TORCH_NCCL_ASYNC_ERROR_HANDLING="0", NCCL_BLOCKING_WAIT="true"))
    ),
    silent(  # torch does not see what an nccl.conf holds
        a_machine(settings=settings("/etc/nccl.conf:1", TORCH_NCCL_ASYNC_ERROR_HANDLING="0"))
    ),
    skips(a_machine(settings=Unread(why="not permitted")), saying=["not permitted"]),
)
