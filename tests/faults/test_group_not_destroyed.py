from holdfast.remains.nouns import Exit, Line, Raised
from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

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
LINE = Line(text="exit", source="job.log", number=9)

test_recognise = recognise_table(
    "group-not-destroyed",
    recognises(
        wreckage(WARNING, LOST), sure=0.4, rank=0, victims=[1], saying=["lost their connection"]
    ),
    recognises(
        wreckage(OLD_WARNING, exits=(Exit(code=-11, line=LINE, rank=0),)),
        sure=0.4,
        rank=0,
        saying=["crashed on its way out"],
    ),
    passes_over(wreckage(WARNING)),  # a healthy run looks like this
    passes_over(wreckage(WARNING, exits=(Exit(code=0, line=LINE, rank=0),))),
    passes_over(wreckage(TIMED_OUT, WARNING)),  # the trouble came first
    passes_over(wreckage(WARNING, LOST, raised=(Raised(kind="ValueError", text="", line=LINE),))),
)
