"""Every log pattern that belongs to no single fault."""

from __future__ import annotations

from holdfast.analysis.logs.pattern import LogPattern, Role
from holdfast.analysis.logs.patterns import (
    kernel,
    launchers,
    nccl,
    nccl_tests,
    peers,
    watchdog,
)

TRACEBACK = LogPattern(
    name="python: traceback",
    pattern=r"Traceback \(most recent call last\)",
    anchors=("Traceback (most recent call last)",),
    example="[rank3]: Traceback (most recent call last):",
    role=Role.CONTEXT,
)
THROWN = LogPattern(
    name="native: thrown",
    pattern=r"terminate called (?:after throwing an instance of '(?P<kind>[^']+)'|without)",
    anchors=("terminate called ",),
    example="terminate called after throwing an instance of 'gloo::EnforceNotMet'",
    role=Role.CONTEXT,
)
ERROR = LogPattern(
    name="python: error",
    # The last line of a traceback whose head is cut away, or of an error that was only printed.
    pattern=r"^(?:\S+: )?(?P<kind>(?:\w{1,80}\.){0,12}[A-Z]\w{0,80}(?:Error|Exception|Interrupt))"
    r"(?:: (?P<text>.*))?$",
    anchors=("Error: ", "Exception: ", "KeyboardInterrupt"),
    example="torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2246",
    role=Role.CONTEXT,
)
IGNORED = LogPattern(
    name="python: ignored",
    # Python's own words before the traceback of an exception that ends nothing: in a destructor,
    # at exit, inside the logging module. torchft's, before that of a step it skips.
    pattern=r"^\s*(?:Exception ignored (?:in|on)\b|Error in atexit\._run_exitfuncs:"
    r"|--- Logging error ---)|got exception in (?:future|all reduce) -- skipping remaining: ",
    anchors=(
        *("Exception ignored ", "Error in atexit._run_exitfuncs", "--- Logging error ---"),
        " -- skipping remaining: ",
    ),
    example="Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f5c>",
    role=Role.CONTEXT,
)
SETTING = LogPattern(
    name="settings: variable",
    # At the beginning only: in the middle of a sentence it is advice ('try NCCL_DEBUG=INFO').
    pattern=r"^\s*(?:\+{1,3} )?(?:env: |- |-x |(?:declare -x|export) )?['\"]?"
    r"(?P<name>(?:TORCH_)?(?:NCCL|GLOO|RCCL|UCX|FI|HOROVOD|SLURM)_[A-Z0-9_]+|MASTER_ADDR|MASTER_PORT"
    r"|WORLD_SIZE|CUDA_VISIBLE_DEVICES)['\"]?(?:=|: )(?P<value>\"[^\"]*\"|'[^']*'|[^\s,;]+)",
    anchors=(
        "NCCL_",
        "GLOO_SOCKET_",
        "MASTER_ADDR",
        "MASTER_PORT",
        "WORLD_SIZE",
        "FI_PROVIDER",
        "CUDA_VISIBLE_DEVICES",
        "UCX_NET_DEVICES",
        "HOROVOD_",
        "SLURM_",
    ),
    example="export NCCL_SOCKET_IFNAME=eth0",
    role=Role.CONTEXT,
)
WORLD = LogPattern(
    name="settings: world",
    pattern=r"MEMBER: \d+/(?P<member>\d+)|global_world_sizes=\[(?P<elastic>\d+)"
    r"|[Ww]orld size:? (?P<said>\d+)",
    anchors=("MEMBER: ", "global_world_sizes=", "orld size"),
    example="Initializing distributed: GLOBAL_RANK: 1, MEMBER: 2/4",
    role=Role.CONTEXT,
)
NODES = LogPattern(
    name="settings: nodes",
    # The command that a script echoes, and what torchrun prints of its configuration.
    pattern=r"(?:--nnodes|--num[-_]machines|--num[-_]nodes|\bNNODES|\bnnodes|\bnum_nodes"
    r"|^\s*min_nodes {0,12}:)['\"]?[=: ]{0,2}['\"]?(?P<nodes>\d{1,6})\b",
    anchors=(
        *("nnodes", "NNODES", "num_nodes", "num-nodes", "num_machines", "num-machines"),
        "min_nodes",
    ),
    example="+ torchrun --nnodes 2 --nproc-per-node 8 train.py",
    role=Role.CONTEXT,
)
VERSIONS = LogPattern(
    name="settings: versions",
    pattern=r"(?:PyTorch|[Tt]orch)(?: version| Version)?(?:: |==)v?(?P<torch>\d+\.\d+\.\d+\S*)"
    r"|Driver [Vv]ersion:? +(?P<driver>[\d.]+)|Python version: (?P<python>[\d.]+)"
    r"|CUDA (?:runtime )?[Vv]ersion: +(?P<cuda>[\d.]+)",
    anchors=(
        "orch version",
        "orch Version",
        "torch==",
        "torch: ",
        "PyTorch: ",
        "river Version",
        "river version",
        "Python version: ",
        "CUDA runtime version",
        "CUDA Version",
    ),
    example="PyTorch version: 2.11.0+cu130",
    role=Role.CONTEXT,
)

SECTION = LogPattern(
    name="launchers: section",
    # Ray Train and Composer repeat what a rank wrote; of several ranks, none is meant.
    pattern=r"^\[Rank (?:(?P<rank>\d{1,7})|[\d,]+) Error Snippet\]:"
    r"|^-{10}(?:Begin global rank (?P<begin>\d{1,7})|End global rank \d+) STD",
    anchors=(" Error Snippet]:", "-Begin global rank ", "-End global rank "),
    example="[Rank 2 Error Snippet]:",
    role=Role.CONTEXT,
)

ALL: tuple[LogPattern, ...] = (
    TRACEBACK,
    THROWN,
    ERROR,
    IGNORED,
    SETTING,
    WORLD,
    NODES,
    VERSIONS,
    SECTION,
    *watchdog.ALL,
    *peers.ALL,
    *launchers.ALL,
    *nccl.ALL,
    *nccl_tests.ALL,
    *kernel.ALL,
)
