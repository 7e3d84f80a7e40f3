from holdfast.analysis.machine import Setting, Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import compose, dockerfile, nccl_conf, python, shell
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

BOTH = settings(TORCH_NCCL_BLOCKING_WAIT="1", TORCH_NCCL_ASYNC_ERROR_HANDLING="1")
IN_A_FILE = (
    Setting(name="TORCH_NCCL_BLOCKING_WAIT", value="1", origin="/etc/nccl.conf:1"),
    Setting(name="TORCH_NCCL_ASYNC_ERROR_HANDLING", value="1", origin="environment"),
)

test_check = check_table(
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
        saying=["ignores NCCL_SOCKET_IFNAME", "data connections still use"],
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

test_explain = explain_table(
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

IN_ONE = """
    export TORCH_NCCL_BLOCKING_WAIT=1
    export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
    torchrun train.py
"""

test_lint = lint_table(
    "variable-conflict",
    flags(
        "warning",
        shell(IN_ONE),
        lines=[2],
        saying=["TORCH_NCCL_BLOCKING_WAIT wins", "TORCH_NCCL_BLOCKING_WAIT=1", "remove"],
    ),
    flags(  # the other way round, the second is pointed at all the same
        "warning",
        python("""
            import os
            os.environ["NCCL_ASYNC_ERROR_HANDLING"] = "1"
            os.environ.setdefault("NCCL_BLOCKING_WAIT", "true")
        """),
        lines=[3],
        saying=["async error handling is off"],
    ),
    flags(
        "warning",
        shell("TORCH_NCCL_BLOCKING_WAIT=1 TORCH_NCCL_ASYNC_ERROR_HANDLING=3 python train.py"),
        lines=[1],
        saying=["wins"],
    ),
    flags(
        "warning",
        shell("export NCCL_BLOCKING_WAIT=1\nexport TORCH_NCCL_BLOCKING_WAIT=0"),
        lines=[2],
        saying=["TORCH_NCCL_BLOCKING_WAIT=0 wins over NCCL_BLOCKING_WAIT=1"],
    ),
    flags(
        "error",
        shell("export NCCL_IB_DISABLE=1\nNCCL_NET=IB torchrun train.py"),
        lines=[2],
        saying=["requires RDMA", "`NCCL_NET=Socket`"],
    ),
    flags(
        "note",
        shell("export NCCL_P2P_DISABLE=1 NCCL_P2P_LEVEL=NVL"),
        lines=[1],
        saying=["NCCL_P2P_LEVEL=NVL has no effect"],
    ),
    leaves(shell(IN_ONE.replace("WAIT=1", "WAIT=0"))),
    leaves(shell("export TORCH_NCCL_BLOCKING_WAIT=$WAIT TORCH_NCCL_ASYNC_ERROR_HANDLING=1")),
    leaves(  # the last value counts
        shell("""
            export TORCH_NCCL_BLOCKING_WAIT=1
            export TORCH_NCCL_BLOCKING_WAIT=0
            export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
        """)
    ),
    leaves(
        shell("""
            export TORCH_NCCL_BLOCKING_WAIT=1
            python debug.py
            unset TORCH_NCCL_BLOCKING_WAIT
            TORCH_NCCL_ASYNC_ERROR_HANDLING=1 python train.py
        """)
    ),
    leaves(  # one or the other
        shell("""
            if ibstat > /dev/null; then
                export NCCL_NET=IB
            else
                export NCCL_IB_DISABLE=1
            fi
            torchrun train.py
        """)
    ),
    leaves(
        shell("""
            case $FABRIC in
                ib) export NCCL_NET=IB ;;
                *) export NCCL_IB_DISABLE=1 ;;
            esac
        """)
    ),
    leaves(  # each for its own service
        compose("""
            services:
              fast: {image: x, environment: [NCCL_NET=IB]}
              slow: {image: x, environment: [NCCL_IB_DISABLE=1]}
        """)
    ),
    leaves(shell("docker run -e NCCL_NET=IB x\ndocker run -e NCCL_IB_DISABLE=1 x")),
    flags(
        "error",
        shell("docker run -e NCCL_NET=IB -e NCCL_IB_DISABLE=1 x torchrun train.py"),
        lines=[1],
        saying=["requires RDMA"],
    ),
    flags(
        "error",
        dockerfile("FROM x\nENV NCCL_NET=IB\nENV NCCL_IB_DISABLE=1"),
        lines=[3],
        saying=["requires RDMA"],
    ),
    leaves(nccl_conf("TORCH_NCCL_BLOCKING_WAIT=1\nTORCH_NCCL_ASYNC_ERROR_HANDLING=1")),
    leaves(  # each for its own command
        shell("NCCL_NET=IB python a.py\nNCCL_IB_DISABLE=1 python b.py")
    ),
    leaves(  # no program sees it
        shell("NCCL_IB_DISABLE=1\nexport NCCL_NET=IB")
    ),
    leaves(
        python("""
            import os
            def over_ib():
                os.environ["NCCL_NET"] = "IB"
            def over_tcp():
                os.environ["NCCL_IB_DISABLE"] = "1"
        """)
    ),
    leaves(
        python("""
            import os
            if fast:
                os.environ["NCCL_NET"] = "IB"
            else:
                os.environ["NCCL_IB_DISABLE"] = "1"
        """)
    ),
)
