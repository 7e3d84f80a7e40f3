from holdfast.analysis.source.source import LintingMachine
from tests.analysis.source.made_sources import python, shell
from tests.faults.table import flags, leaves, lint_table

HANDLING = "export TORCH_NCCL_ASYNC_ERROR_HANDLING"

test_lint = lint_table(
    "variable-redundant",
    flags(
        "note",
        shell(f"{HANDLING}=1"),
        lines=[1],
        saying=["error handling is on by default", "sooner", "remove TORCH_NCCL_ASYNC_ERROR"],
    ),
    flags(
        "note",
        shell(f"{HANDLING}=3", here=LintingMachine()),
        lines=[1],
        saying=["the default is 3"],
    ),
    flags(
        "note",
        python(
            'import os\nos.environ["NCCL_IB_DISABLE"] = "0"\nos.putenv("NCCL_P2P_DISABLE", "0")'
        ),
        lines=[2, 3],
        saying=["NCCL_IB_DISABLE=0 is the default", "NCCL 2.32.3"],
    ),
    flags(
        "note",
        shell("export NCCL_SHM_DISABLE=0 TORCH_NCCL_BLOCKING_WAIT=false"),
        lines=[1, 1],
        saying=["TORCH_NCCL_BLOCKING_WAIT=false is the default"],
    ),
    leaves(shell(f"{HANDLING}=0")),
    leaves(shell(f"{HANDLING}=2")),
    leaves(shell(f"{HANDLING}=$MODE")),
    leaves(
        shell(f"{HANDLING}=1", here=LintingMachine(torch="2.1.0"))
    ),  # variable-deprecated speaks
    leaves(shell("export TORCH_NCCL_ENABLE_MONITORING=1", here=LintingMachine(torch="2.4.0"))),
    leaves(shell("export TORCH_NCCL_DUMP_ON_TIMEOUT=1")),  # the default of late: it makes sure
    leaves(shell('export NCCL_COLLNET_ENABLE="${NCCL_COLLNET_ENABLE:-0}"')),  # a knob
    leaves(shell("export NCCL_P2P_DISABLE=1 NCCL_P2P_LEVEL=automatic NCCL_DEBUG=INFO")),
    leaves(shell("export NCCL_IB_DISABLE=1\nNCCL_IB_DISABLE=0 python train.py")),  # takes it back
    leaves(shell("NCCL_IB_DISABLE=0")),
    leaves(shell("unset NCCL_IB_DISABLE")),
)
