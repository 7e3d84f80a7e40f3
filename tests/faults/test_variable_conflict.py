from holdfast.facts import Setting, Unread
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

BOTH = settings(TORCH_NCCL_BLOCKING_WAIT="1", TORCH_NCCL_ASYNC_ERROR_HANDLING="1")
IN_A_FILE = (
    Setting(name="TORCH_NCCL_BLOCKING_WAIT", value="1", origin="/etc/nccl.conf:1"),
    Setting(name="TORCH_NCCL_ASYNC_ERROR_HANDLING", value="1", origin="environment"),
)

test_foresee = foresee_table(
    "variable-conflict",
    speaks(
        "warning",
        a_machine(settings=BOTH),
        saying=["TORCH_NCCL_BLOCKING_WAIT wins", "async error handling is off", "no watchdog"],
    ),
    speaks(
        "warning",  # old spellings and torch's other words for yes
        a_machine(settings=settings(NCCL_BLOCKING_WAIT="True", NCCL_ASYNC_ERROR_HANDLING="3")),
        saying=["NCCL_BLOCKING_WAIT wins"],
    ),
    speaks(
        "warning",
        a_machine(settings=settings(TORCH_NCCL_BLOCKING_WAIT="0", NCCL_BLOCKING_WAIT="1")),
        saying=["TORCH_NCCL_BLOCKING_WAIT=0 wins over NCCL_BLOCKING_WAIT=1"],
    ),
    speaks(
        "note",
        a_machine(settings=settings(NCCL_COMM_ID="10.0.0.1:20000", NCCL_SOCKET_IFNAME="eth1")),
        saying=["ignores NCCL_SOCKET_IFNAME", "data connections still follow"],
    ),
    speaks(
        "note",
        a_machine(settings=settings(NCCL_P2P_DISABLE="1", NCCL_P2P_LEVEL="NVL")),
        saying=["NCCL_P2P_DISABLE=1 wins"],
    ),
    speaks(
        "error",
        a_machine(settings=settings(NCCL_NET="ib", NCCL_IB_DISABLE="1")),
        saying=["NCCL will not start", "NCCL_NET=Socket"],
    ),
    silent(a_machine()),
    silent(a_machine(settings=settings(TORCH_NCCL_BLOCKING_WAIT="1"))),
    silent(
        a_machine(
            settings=settings(TORCH_NCCL_BLOCKING_WAIT="1", TORCH_NCCL_ASYNC_ERROR_HANDLING="0")
        )
    ),
    silent(
        a_machine(
            settings=settings(TORCH_NCCL_BLOCKING_WAIT="no", TORCH_NCCL_ASYNC_ERROR_HANDLING="1")
        )
    ),
    silent(  # the new spelling says no, and it is the one that counts
        a_machine(
            settings=settings(
                TORCH_NCCL_BLOCKING_WAIT="0",
                NCCL_BLOCKING_WAIT="0",
                TORCH_NCCL_ASYNC_ERROR_HANDLING="1",
            )
        )
    ),
    silent(a_machine(settings=IN_A_FILE)),  # torch does not see what an nccl.conf holds
    silent(a_machine(settings=settings(NCCL_COMM_ID="10.0.0.1:2", NCCL_SOCKET_IFNAME="e"))),
    silent(a_machine(settings=settings(NCCL_P2P_DISABLE="0", NCCL_P2P_LEVEL="NVL"))),
    silent(a_machine(settings=settings(NCCL_NET="Socket", NCCL_IB_DISABLE="1"))),
    skips(a_machine(settings=Unread(why="not permitted")), saying=["not permitted"]),
)

NO_WAY = (
    "enqueue.cc:1873 NCCL WARN Error : no algorithm/protocol available for function AllGather with "
    "datatype ncclInt8."
)

test_recognise = recognise_table(
    "variable-conflict",
    recognises(
        wreckage(f"{NO_WAY} NCCL_ALGO was set to Tree."),
        sure=0.93,
        what="NCCL_ALGO=Tree",
        saying=["no way to do AllGather (ncclInt8)"],
    ),
    recognises(
        wreckage(f"{NO_WAY} NCCL_ALGO was set to Ring. NCCL_PROTO was set to LL128."),
        sure=0.93,
        what="NCCL_ALGO=Ring and NCCL_PROTO=LL128",
        saying=["NCCL_PROTO=LL128"],
    ),
    recognises(
        wreckage('tuning.cc:102 NCCL WARN Unrecognized element token "tre" when parsing "tre"'),
        sure=0.92,
        what="=tre",
        saying=['does not know "tre"'],
    ),
    passes_over(wreckage(NO_WAY)),  # nothing was forced: that is NCCL's own gap
    passes_over(wreckage("NCCL INFO NCCL_ALGO set by environment to Ring")),
)
