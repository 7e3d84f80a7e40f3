from typing import Any

import msgspec

from holdfast.analysis.machine import MachineFacts, NcclLibrary, Software, Unread
from holdfast.analysis.source.source import LintingMachine
from tests.analysis.source.made_sources import shell
from tests.faults.machines import a_machine, settings
from tests.faults.table import check_table, flags, leaves, lint_table, silent, skips, speaks


def with_torch(version: str, *, nccl: str = "2.29.7", **variables: str) -> MachineFacts:
    healthy = a_machine().software
    assert isinstance(healthy, Software)
    library = NcclLibrary(path="/venv/libnccl.so.2", version=nccl, origin="python package")
    changes: dict[str, Any] = {"torch": version, "nccl": (library,) if nccl else ()}
    software = msgspec.structs.replace(healthy, **changes)
    return a_machine(settings=settings(**variables), software=software)


test_check = check_table(
    "variable-deprecated",
    speaks(
        "warning",
        with_torch("2.13.0", NCCL_ASYNC_ERROR_HANDLING="1"),
        saying=[
            "no effect under torchrun",
            "`unset NCCL_ASYNC_ERROR_HANDLING`: error handling is on by default",
        ],
    ),
    speaks(
        "note",
        with_torch("2.2.0+cu121", NCCL_BLOCKING_WAIT="1"),
        saying=["old name of TORCH_NCCL_BLOCKING_WAIT", "torch 2.2.0+cu121 still reads it"],
        not_saying=["torchrun"],
    ),
    speaks(
        "warning",
        with_torch("2.1.2", TORCH_NCCL_DESYNC_DEBUG="1"),
        saying=["ignored by torch 2.1.2", "export NCCL_DESYNC_DEBUG=1"],
    ),
    speaks(
        "warning",
        with_torch("2.13.0", NCCL_TREE_THRESHOLD="0"),
        saying=["no longer read by NCCL 2.29.7", "2.4", "use NCCL_ALGO"],
    ),
    speaks(
        "note",
        with_torch("2.13.0", nccl="", NCCL_TREE_THRESHOLD="0"),
        saying=["up to 2.4 only", "is not known"],
    ),
    speaks(
        "note",
        with_torch("2.13.0", NCCL_MAX_NCHANNELS="8"),
        saying=["deprecated in favour of NCCL_MAX_CTAS", "still reads it"],
    ),
    speaks(
        "note",
        with_torch("2.13.0", TORCH_NCCL_TRACE_BUFFER_SIZE="2000"),
        saying=["old name of TORCH_FR_BUFFER_SIZE"],
    ),
    silent(a_machine()),
    silent(with_torch("2.1.2", NCCL_BLOCKING_WAIT="1")),
    silent(with_torch("2.13.0", TORCH_NCCL_ASYNC_ERROR_HANDLING="1")),
    silent(with_torch("2.8.0", TORCH_NCCL_TRACE_BUFFER_SIZE="2000")),  # may not know the new name
    silent(with_torch("2.13.0", nccl="2.19.4", NCCL_WORK_FIFO_DEPTH="4")),  # it still reads it
    silent(with_torch("", NCCL_BLOCKING_WAIT="1")),
    silent(with_torch("2.13.0", NCCL_BLOCKING_WAIT="0", TORCH_NCCL_BLOCKING_WAIT="1")),
    silent(a_machine(settings=settings(NCCL_DEBUG="INFO"), software=Unread(why="hung"))),
    skips(
        a_machine(settings=settings(NCCL_BLOCKING_WAIT="1"), software=Unread(why="pip hung")),
        saying=["pip hung"],
    ),
    skips(a_machine(settings=Unread(why="not permitted")), saying=["not permitted"]),
)

OLD = "export NCCL_ASYNC_ERROR_HANDLING=1"

test_lint = lint_table(
    "variable-deprecated",
    flags(
        "warning",
        shell(f"{OLD}\ntorchrun --nproc-per-node=8 train.py"),
        lines=[1],
        saying=["has no effect: the job is started by torchrun", "on by default"],
    ),
    flags(
        "note",
        shell(f"{OLD}\nmpirun -np 8 python train.py"),
        lines=[1],
        saying=["is the old name", "error handling is on by default"],
        not_saying=["torchrun"],
    ),
    flags("warning", shell(f"{OLD}\naccelerate launch a.py"), lines=[1], saying=["torchrun"]),
    flags("warning", shell(OLD, here=LintingMachine()), lines=[1], saying=["torch prefers"]),
    flags(
        "note",
        shell("export NCCL_BLOCKING_WAIT=1"),
        lines=[1],
        saying=["the old name of TORCH_NCCL_BLOCKING_WAIT", "`TORCH_NCCL_BLOCKING_WAIT=1`"],
    ),
    flags(
        "warning",
        shell("export TORCH_NCCL_BLOCKING_WAIT=1", here=LintingMachine(torch="2.1.2")),
        lines=[1],
        saying=["ignored by torch 2.1.2", "`NCCL_BLOCKING_WAIT=1`"],
    ),
    flags(
        "warning",
        shell("export NCCL_TREE_THRESHOLD=0", here=LintingMachine(nccl="2.27.3")),
        lines=[1],
        saying=["no longer read by NCCL 2.27.3", "use NCCL_ALGO"],
    ),
    leaves(shell("export TORCH_NCCL_BLOCKING_WAIT=1")),
    leaves(shell(OLD, here=LintingMachine(torch="2.1.2"))),
    leaves(shell(f"{OLD} TORCH_NCCL_ASYNC_ERROR_HANDLING=1")),  # for old and new versions
    flags(  # the other command has both
        "note",
        shell(f"{OLD}\npython a.py\nTORCH_NCCL_ASYNC_ERROR_HANDLING=1 python b.py"),
        lines=[1],
        saying=["is the old name"],
    ),
    leaves(shell("unset NCCL_ASYNC_ERROR_HANDLING")),
    leaves(shell("NCCL_ASYNC_ERROR_HANDLING=1")),
)
