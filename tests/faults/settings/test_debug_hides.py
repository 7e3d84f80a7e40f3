from holdfast.analysis.source.source import LintingMachine
from tests.analysis.source.made_sources import python, shell
from tests.faults.table import flags, leaves, lint_table

test_lint = lint_table(
    "debug-hides",
    flags(
        "note",
        shell("export NCCL_DEBUG=INFO\nexport NCCL_DEBUG_SUBSYS=INIT,NET"),
        lines=[2],
        saying=[
            "hides the interface that was chosen and the variables NCCL read",
            "`NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET`",
        ],
    ),
    flags(
        "note",
        python("""
            import os
            os.environ.update({"NCCL_DEBUG": "info", "NCCL_DEBUG_SUBSYS": "net"})
        """),
        lines=[2],
        saying=["the start of each communicator", "`NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET`"],
    ),
    leaves(shell("export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING")),  # asked for by name
    leaves(shell("export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL")),
    flags(
        "note",
        shell("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=^ENV torchrun train.py"),
        lines=[1],
        saying=["hides the variables NCCL read"],
        not_saying=["the interface that was chosen"],
    ),
    flags(
        "note",
        shell(
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT python a.py", here=LintingMachine(nccl="2.21.5")
        ),
        lines=[1],
        saying=["`NCCL_DEBUG_SUBSYS=INIT,ENV`"],
    ),
    flags(
        "warning",
        shell("export NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV\ntorchrun train.py"),
        lines=[1],
        saying=["has no effect: NCCL_DEBUG is not set", "add `NCCL_DEBUG=INFO`"],
    ),
    flags(
        "warning",
        shell("export NCCL_DEBUG=WARN\nexport NCCL_DEBUG_SUBSYS=ALL"),
        lines=[2],
        saying=["NCCL_DEBUG is WARN"],
    ),
    flags(
        "warning",
        shell("export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,BOOTSTRAP,NETWORK"),
        lines=[1],
        saying=["no subsystem NETWORK"],
    ),
    flags(
        "warning",
        shell("NCCL_DEBUG=DEBUG python train.py"),
        lines=[1],
        saying=["NCCL_DEBUG=DEBUG is not a level", "`NCCL_DEBUG=INFO`"],
    ),
    flags(
        "warning",
        shell("export NCCL_DEBUG=INFO NCCL_DEBUG_FILE=/logs/nccl.%h.txt"),
        lines=[1],
        saying=["overwrite each other's log", "`NCCL_DEBUG_FILE=/logs/nccl.%h.%p.txt`"],
    ),
    flags(
        "warning",
        python('import os\nos.environ["NCCL_DEBUG_FILE"] = "/logs/v1.2/nccl"'),
        lines=[2],
        saying=["`NCCL_DEBUG_FILE=/logs/v1.2/nccl.%h.%p`"],
    ),
    leaves(shell("export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV,NET")),
    leaves(shell("export NCCL_DEBUG=TRACE NCCL_DEBUG_SUBSYS=ALL")),
    leaves(shell("export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=^COLL,CALL")),
    leaves(shell("export NCCL_DEBUG=$LEVEL NCCL_DEBUG_SUBSYS=ALL\ntorchrun train.py")),
    leaves(shell("export NCCL_DEBUG_SUBSYS=ALL")),  # the level may come from elsewhere
    leaves(shell("source nccl.sh\nexport NCCL_DEBUG_SUBSYS=ALL\ntorchrun train.py")),
    leaves(shell("export NCCL_DEBUG_SUBSYS=ALL\ntorchrun train.py", complete=False)),
    leaves(
        shell("""
            export NCCL_DEBUG_SUBSYS=ALL
            if [ -n "$VERBOSE" ]; then export NCCL_DEBUG=INFO; fi
            torchrun train.py
        """)
    ),
    leaves(shell("export NCCL_DEBUG=warn NCCL_WARN_ENABLE_DEBUG_INFO=1 NCCL_DEBUG_SUBSYS=ALL")),
    leaves(shell("export NCCL_DEBUG_FILE=/logs/nccl.%h.%p.log")),
    leaves(shell("export NCCL_DEBUG_FILE=/logs/nccl.$SLURM_PROCID.log")),
    leaves(shell("export NCCL_DEBUG_FILE=/dev/stderr")),
)
