"""What launchers and frameworks say when their own check of the request fails.

Each knows only its own share of the numbers, so it names two of them that do not fit; which
of the two is wrong, the user knows.
"""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern

_check = functools.partial(LogPattern, slug="launcher-config")

LOCAL_RANK = _check(
    name="checks: local-rank",
    # Trackers turn two hyphens into a dash.
    pattern=r"unrecognized arguments?:.*?(?P<flag>(?:--|[–—])local[-_]rank)\b",
    anchors=("arguments: --local", "recognized arguments:"),
    example="train.py: error: unrecognized arguments: --local-rank=0",
)
MISPLACED = _check(
    name="checks: misplaced",
    pattern=r"^(?!.*(?:torchrun|run\.py|launch\.py): error).*unrecognized arguments?:.{0,400}?"
    r"(?P<flag>-m torch\.distributed\.\w{3,8}|--(?:nproc[-_]per[-_]node|nnodes|node[-_]rank"
    r"|master[-_](?:addr|port)|rdzv[-_]\w{2,10}|num_processes|num_machines))\b",
    anchors=("recognized arguments:",),
    example="train.py: error: unrecognized arguments: -m torch.distributed.launch --nproc_per_node "
    "2",
)
TORCHRUN = _check(
    name="checks: torchrun",
    pattern=r"(?P<what>Unsupported nproc_per_node value: ?\S*"
    r"|nnodes=\S+ is not in \"MIN:MAX\" format"
    r"|min_nodes must be > 0 and <= max_nodes[^\n]*"
    r"|(?:torchrun|run\.py): error: (?!unrecognized arguments: --local)[^\n]*)",
    anchors=(
        "Unsupported nproc_per_node",
        'not in "MIN:MAX" format',
        "min_nodes must be > 0",
        "torchrun: error: ",
        "run.py: error: ",
    ),
    example="ValueError: Unsupported nproc_per_node value: gpus",
)
HOSTFILE = _check(
    name="checks: deepspeed-hostfile",
    pattern=r"(?P<what>No slot '?\d+'? specif\w{2,8} on host '?[^'\s]{1,120}'?"
    r"|Hostname '[^']*' not found in hostfile"
    r"|Hostfile contains a bad entry: [^,]*|Hostfile contains multiple entries for [^,\s]+"
    r"|Hostfile is (?:empty or )?not formatted correctly|host \S+ is already defined"
    r"|Num nodes is >1 but no extra nodes available via hostfile"
    r"|Cannot specify num_nodes/gpus with include/exclude)",
    anchors=(
        "No slot ",
        "not found in hostfile",
        "Hostfile contains ",
        "not formatted correctly",
        " is already defined",
        "nodes available via hostfile",
        "num_nodes/gpus with include",
    ),
    example="ValueError: No slot '4' specified on host 'worker-0'",
)
ACCELERATE = _check(
    name="checks: accelerate",
    pattern=r"(?P<what>need to use at least 2 processes to use `?-*multi_gpu"
    r"|Less than two GPU ids were configured"
    r"|only use one of `--cpu`, `--multi_gpu`[^.]*"
    r"|need to manually pass in `--num_processes`)",
    anchors=(
        "at least 2 processes to use",
        "Less than two GPU ids",
        "can only use one of `--",
        "manually pass in `--num_processes`",
    ),
    example="ValueError: You need to use at least 2 processes to use `--multi_gpu`.",
)
LIGHTNING = _check(
    name="checks: lightning-slurm",
    pattern=r"You set `(?P<what>--ntasks=\d+)` in your SLURM bash script"
    r"|You set `(?P<mine>(?:devices|num_nodes)=\d+)` in Lightning, but the number of .*? "
    r"configured in SLURM `(?P<slurm>--[\w-]+=\d+)` does not match",
    anchors=("in your SLURM bash script", "in Lightning, but the number of"),
    example="ValueError: You set `devices=4` in Lightning, but the number of tasks per node "
    "configured in SLURM `--ntasks-per-node=1` does not match. HINT: Set `devices=1`.",
)
DIVISIBLE = _check(
    name="checks: parallel-sizes",
    pattern=r"world[ _]size ?\((?P<world>\d+)\) is not divisible by (?P<by>.*?\d+\)?)"
    r"|Invalid parallel dims: (?P<dims>.*?WORLD_SIZE\(\d+\))"
    r"|Mesh should not be bigger than default world size(?: (?P<have>\d+))?"
    r"(?:, but found (?P<need>\d+) ranks)?"
    r"|World size \((?P<size>\d+)\) is not valid with the current list of valid GPU counts",
    anchors=(
        ") is not divisible by ",
        "Invalid parallel dims",
        "bigger than default world size",
        "is not valid with the current list",
    ),
    example="AssertionError: world size (6) is not divisible by total_model_size "
    "(total_model_size=4)",
)
GROUP = _check(
    name="checks: group",
    pattern=r"new group's (?:rank should be within the (?:the )?world_size"
    r"|world size should be less or equal to the world size)",
    anchors=("new group's ",),
    example="RuntimeError: The new group's rank should be within the world_size set by "
    "init_process_group",
)
BATCH = _check(
    name="checks: deepspeed-batch",
    pattern=r"train_batch_size is not equal to micro_batch_per_gpu \* gradient_acc_step "
    r"\* world_size"
    r"(?: (?P<total>\d+) ?!= ?(?P<micro>\d+) ?\* ?(?P<steps>\d+) ?\* ?(?P<world>\d+))?",
    anchors=("train_batch_size is not equal",),
    example="AssertionError: Check batch related parameters. train_batch_size is not equal to "
    "micro_batch_per_gpu * gradient_acc_step * world_size 256 != 4 * 8 * 1",
)

ALL: tuple[LogPattern, ...] = (
    LOCAL_RANK,
    MISPLACED,
    TORCHRUN,
    HOSTFILE,
    ACCELERATE,
    LIGHTNING,
    DIVISIBLE,
    GROUP,
    BATCH,
)
