from holdfast.analysis.machine import Setting, Unread, VariableSearch
from holdfast.analysis.source.source import LintingMachine
from holdfast.catalogue import by_slug
from tests.analysis.source.made_sources import (
    compose,
    dockerfile,
    env_file,
    nccl_conf,
    python,
    shell,
)
from tests.faults.machines import a_machine, settings
from tests.faults.table import check_table, flags, leaves, lint_table, silent, skips, speaks

NCCL = "libnccl.so.2 (NCCL 2.29.7)"


def searched(*prefixes: str, **found: tuple[str, ...]) -> VariableSearch:
    return VariableSearch(
        searched=(NCCL, "libtorch_cuda.so (torch 2.13.0)"), prefixes=prefixes, found=found
    )


def conf(name: str, value: str) -> tuple[Setting, ...]:
    return (Setting(name=name, value=value, origin="/etc/nccl.conf:3"),)


test_check = check_table(
    "variable-unread",
    speaks(
        "warning",
        a_machine(settings=settings(NCCL_REUSE_SOCKET_ADDR="0")),
        saying=["NCCL_REUSE_SOCKET_ADDR is not read by any program", "fresh anyway", "`unset"],
    ),
    speaks(
        "warning",  # the table's word, and the proof beside it
        a_machine(
            settings=settings(NCCL_TIMEOUT="1800"),
            variable_search=searched("NCCL_", NCCL_TIMEOUT=()),
        ),
        saying=["searched libnccl.so.2 (NCCL 2.29.7)", "init_process_group(timeout=…)"],
    ),
    speaks(
        "warning",
        a_machine(
            settings=settings(NCCL_SOKCET_IFNAME="eth0"),
            variable_search=searched("NCCL_", NCCL_SOKCET_IFNAME=()),
        ),
        saying=[
            "not read by any program installed here",
            "did you mean NCCL_SOCKET_IFNAME?",
            "your own script",
        ],
    ),
    speaks(
        "note",  # nothing to prove it with
        a_machine(settings=settings(TORCH_NCCL_HARTBEAT_TIMEOUT_SEC="60")),
        saying=[
            "the table was read from torch 2.15.0",
            "did you mean TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC?",
        ],
    ),
    speaks(
        "note",  # a newer name than the installed library
        a_machine(
            settings=settings(NCCL_SOCKET_MAGIC="7"),
            variable_search=searched("NCCL_", NCCL_SOCKET_MAGIC=()),
        ),
        saying=["is not read by the version installed here", "since 2.30.7", NCCL],
    ),
    speaks(
        "note",
        a_machine(settings=settings(PET_NPROC="4"), variable_search=Unread(why="no answer")),
        saying=["PET_NPROC is not in holdfast's table of variables"],
    ),
    speaks(
        "warning",
        a_machine(settings=conf("NCCL_DEBUG ", " INFO")),
        saying=["the name 'NCCL_DEBUG ' contains a blank", "`NCCL_DEBUG=INFO`"],
    ),
    speaks(
        "warning",
        a_machine(
            settings=settings(NCCL_IB_DISABLE="true"),
            variable_search=searched("NCCL_", NCCL_IB_DISABLE=(NCCL,)),
        ),
        saying=["NCCL_IB_DISABLE=true has no effect", "counts as 0", "`export NCCL_IB_DISABLE=1`"],
    ),
    speaks(
        "note",
        a_machine(settings=settings(NCL_DEBUG="INFO")),
        saying=["NCL_DEBUG is no known variable, NCCL_DEBUG is", "`export NCCL_DEBUG=INFO`"],
    ),
    silent(a_machine()),
    silent(a_machine(settings=settings(NCCL_DEBUG="INFO", TORCH_NCCL_TRACE_BUFFER_SIZE="2000"))),
    silent(  # unknown to the table, but an installed program holds the name
        a_machine(
            settings=settings(NCCL_VENDOR_KNOB="1"),
            variable_search=searched("NCCL_", NCCL_VENDOR_KNOB=("libnccl.so.2",)),
        )
    ),
    silent(  # the table calls it a myth, an installed program reads it all the same
        a_machine(
            settings=settings(NCCL_TIMEOUT="5"),
            variable_search=searched("NCCL_", NCCL_TIMEOUT=("deepspeed 0.19.6",)),
        )
    ),
    silent(  # left by container images, plugins, and composed at run time
        a_machine(
            settings=settings(
                NCCL_VERSION="2.29.7",
                NCCL_FASTRAK_NUM_FLOWS="2",
                ACCELERATE_FP8_MARGIN="0",
            ),
            variable_search=searched(
                "NCCL_",
                "ACCELERATE_",
                NCCL_VERSION=(),
                NCCL_FASTRAK_NUM_FLOWS=(),
                ACCELERATE_FP8_MARGIN=(),
            ),
        )
    ),
    silent(a_machine(settings=settings(OMP_NUM_THREADS="4", MASTER_PORT="29500", RANK="0"))),
    silent(a_machine(settings=conf("NCCL_SOCKET_IFNAME ", " eth0"))),  # nic-filter-syntax's
    skips(a_machine(settings=Unread(why="no answer within 0.8 s")), saying=["no answer"]),
)


def test_each_variable_has_its_own_finding() -> None:
    machine = a_machine(settings=settings(NCCL_TIMEOUT="1", NCCL_DEBUG="WARN", GLOO_IFNAME="lo"))
    findings = by_slug("variable-unread").ask_check(machine)
    assert [finding.summary.split()[0] for finding in findings] == ["NCCL_TIMEOUT", "GLOO_IFNAME"]


test_lint = lint_table(
    "variable-unread",
    leaves(shell('NCCL_IMAGE="${NCCL_IMAGE:-nccl-tests}"\nexport NCCL_IMAGE')),  # a knob of theirs
    leaves(shell("NCCL_NIGHTLY_ONLY=1 ./health.sh --quick")),  # the script will know it
    flags("note", shell("NCCL_NIGHTLY_ONLY=1 torchrun a.py"), lines=[1], saying=["NIGHTLY"]),
    leaves(  # one spelling for older versions, one for newer ones
        shell("export NCCL_AVOID_RECORD_STREAMS=1 TORCH_NCCL_AVOID_RECORD_STREAMS=1")
    ),
    flags("warning", shell("export NCCL_AVOID_RECORD_STREAMS=1"), lines=[1], saying=["TORCH_"]),
    flags(
        "error",
        shell("export NCCL_REUSE_SOCKET_ADDR=0 ACCELERATE_DISABLE_NCCL=1"),
        lines=[1, 1],
        saying=["NCCL_REUSE_SOCKET_ADDR is not read by any program", "InitProcessGroupKwargs"],
    ),
    flags(
        "error",
        shell("NCCL_TIMEOUT=$((30 * 60)) torchrun train.py"),
        lines=[1],
        saying=["init_process_group(timeout=…)", "unless your own script reads it"],
    ),
    flags(
        "error",
        python('from os import environ\nenviron["NCCL_DISABLE_P2P"] = "1"'),
        lines=[2],
        saying=["the name is NCCL_P2P_DISABLE"],
    ),
    flags(
        "error",  # a default for itself is no reader
        shell('export NCCL_PORT=${NCCL_PORT:-1}\necho "NCCL_PORT=$NCCL_PORT"'),
        lines=[1],
        saying=["NCCL_PORT"],
    ),
    flags(
        "warning",
        shell("export NCCL_SOCKET_IFNAMES=$IFACE"),
        lines=[1],
        saying=["did you mean NCCL_SOCKET_IFNAME?"],
    ),
    flags(
        "note",
        shell("export NCCL_FROBNICATE=1"),
        lines=[1],
        saying=["not in holdfast's table of variables", "a plugin or your own script"],
    ),
    flags(
        "note",
        shell("export NCCL_RAS_ENABLE=0", here=LintingMachine(nccl="2.21.5")),
        lines=[1],
        saying=["from 2.24 on", "2.21.5 is installed here"],
    ),
    flags(
        "warning",
        python("""
            import os
            os.environ["NCL_DEBUG"] = "INFO"
            os.environ.setdefault("OMP_NUM_THREAD", "4")
        """),
        lines=[2, 3],
        saying=["NCL_DEBUG is no known variable, NCCL_DEBUG is", "OMP_NUM_THREADS is"],
    ),
    leaves(shell('export OMP_NUM_THREAD=4\npython train.py --threads "$OMP_NUM_THREAD"')),
    leaves(shell("export HCCL_SOCKET_IFNAME=eth0 UCC_LOG_LEVEL=info MASTER_PORTS='1 2'")),
    flags(
        "warning",
        shell("export NCCL_IB_DISABLE=true NCCL_RAS_ENABLE=yes NCCL_P2P_DISABLE=1"),
        lines=[1, 1],
        saying=["true has no effect: NCCL reads a number", "yes may switch it off"],
    ),
    flags("warning", nccl_conf("NCCL_SHM_DISABLE=on"), lines=[1], saying=["NCCL reads a number"]),
    leaves(shell("export NCCL_IB_DISABLE=false NCCL_SHM_DISABLE=$OFF")),
    flags("warning", nccl_conf("NCCL_DEBUG = INFO"), lines=[1], saying=["contains a blank"]),
    flags(
        "warning",
        shell("cat > ~/.nccl.conf <<E\nNCCL_ALGO=Ring\nNCCL_PROTO = LL\nE\n"),
        lines=[3],
        saying=["contains a blank"],
    ),
    flags(
        "warning",
        nccl_conf("NCCL_DEBUG=INFO\nTORCH_NCCL_BLOCKING_WAIT=1"),
        lines=[2],
        saying=["torch reads it, not NCCL"],
    ),
    flags(
        "error",
        dockerfile("FROM x\nENV NCCL_VERSION=2.1 \\\n    NCCL_TIMEOUT=900"),
        lines=[3],
        saying=["NCCL_TIMEOUT"],
    ),
    flags("error", env_file("# ours\nNCCL_IFNAME=eth0"), lines=[2], saying=["NCCL_SOCKET_IFNAME"]),
    flags(
        "error",
        compose("""
            services:
              trainer:
                image: x
                environment:
                  GLOO_TIMEOUT: 60
        """),
        lines=[5],
        saying=["init_process_group(timeout=…)"],
    ),
    leaves(shell("NCCL_TIMEOUT=5")),  # a variable of the script's own
    leaves(shell("unset NCCL_TIMEOUT")),
    leaves(shell('export NCCL_TIMEOUT=900\npython train.py --timeout "$NCCL_TIMEOUT"')),
    leaves(
        python("""
            import os
            os.environ["NCCL_TIMEOUT"] = "900"
            limit = int(os.environ.get("NCCL_TIMEOUT"))
        """)
    ),
    leaves(shell("export NCCL_VERSION=2.19.3-1 NCCL_HOME=/opt/nccl NCCL_FASTRAK_IFNAME=eth1")),
    leaves(shell("export NCCL_DEBUG=INFO TORCH_NCCL_DUMP_ON_TIMEOUT=1 MY_NCCL_TIMEOUT=5")),
    leaves(shell("export NCCL_RAS_ENABLE=0", here=LintingMachine(nccl="2.24.3"))),
    leaves(nccl_conf("NCCL_DEBUG=INFO")),
)
