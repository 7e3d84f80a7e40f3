from holdfast.analysis.logs.wreckage import Exit, LogLine
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises

WARNING = (
    "[rank0]: [W1115 01:03:15.1 ProcessGroupNCCL.cpp:1538] Warning: WARNING: "
    "destroy_process_group() was not called before program exit, which can leak resources."
)
OLD_WARNING = (
    "[rank0]: [W1115 01:03:15.1 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT "
    "been destroyed before we destruct ProcessGroupNCCL."
)
LOST = "[rank1]: [E1115 01:03:16.1 TCPStore.cpp:106] recvValue failed: Failed to recv, got 0 bytes"
TIMED_OUT = (
    "[rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=11, "
    "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)
LINE = LogLine(text="exit", source="job.log", number=9)
HEALTHY = [f"step {number} loss {1 / number:.3f}" for number in range(1, 9)]

test_explain = explain_table(
    "group-not-destroyed",
    recognises(
        wreckage(WARNING, LOST), sure=0.4, rank=0, victims=[1], saying=["lost their connection"]
    ),
    recognises(
        wreckage(OLD_WARNING, exits=(Exit(code=-11, line=LINE, rank=0),)),
        sure=0.4,
        rank=0,
        saying=["crashed during shutdown"],
    ),
    recognises(wreckage(WARNING), sure=0.3, rank=0, saying=["harmless", "no failure"]),
    passes_over(wreckage(*HEALTHY, WARNING)),
    passes_over(wreckage(WARNING, exits=(Exit(code=0, line=LINE, rank=0),))),
    passes_over(wreckage(TIMED_OUT, WARNING)),  # the trouble came first
    passes_over(wreckage("[rank0]: ValueError: no such split", WARNING, LOST)),
)

JOINS = "import torch.distributed as dist\ndef setup():\n    dist.init_process_group({0})\n{1}\n"
MAIN = 'if __name__ == "__main__":\n    setup()\n    train()'

OF_A_CLASS = (
    "import torch.distributed as dist\nclass Trainer:\n    def __init__(self):\n"
    "        dist.init_process_group('nccl')\n"
)
test_lint = lint_table(
    "group-not-destroyed",
    flags(
        "warning",
        python(OF_A_CLASS + "if __name__ == '__main__':\n    Trainer()"),
        lines=[4],
        saying=["never calls destroy_process_group"],
    ),
    leaves(python(OF_A_CLASS + "if __name__ == '__main__':\n    other()")),
    flags(
        "warning",
        python(JOINS.format("'nccl'", MAIN)),
        lines=[3],
        saying=["never calls destroy_process_group", "`finally:`"],
    ),
    flags("note", python(JOINS.format("backend='gloo'", MAIN)), lines=[3], saying=["harmless"]),
    flags(
        "note",
        python("import torch.distributed as dist\ndist.init_process_group()\ntrain()"),
        lines=[2],
        saying=["destroy_process_group"],
    ),
    leaves(python(JOINS.format("'nccl'", MAIN + "\n    dist.destroy_process_group()"))),
    leaves(python(JOINS.format("'nccl'", MAIN + "\n    helpers.cleanup()"))),
    flags(  # its own, which closes nothing
        "warning",
        python(
            JOINS.format(
                "'nccl'", "def cleanup():\n    dist.barrier()\n" + MAIN + "\n    cleanup()"
            )
        ),
        lines=[3],
        saying=["never calls destroy_process_group"],
    ),
    leaves(
        python(
            JOINS.format("'nccl'", "def cleanup():\n    comm.end()\n" + MAIN + "\n    cleanup()")
        )
    ),
    leaves(python(JOINS.format("'nccl'", ""))),  # a library: others close
    leaves(python(JOINS.format("'nccl'", MAIN), complete=False)),
    leaves(python("import torch.distributed as dist\ndist.barrier()")),
    leaves(python("import torch.distributed as dist\nif on_cloud:\n    dist.init_process_group()")),
)
