"""By which names people call a rank number, the main process, and the number of ranks."""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Iterator

from holdfast.analysis.source.program import constant, dotted


class RankScope(enum.Enum):
    """Whose number it is."""

    JOB = "rank"
    MACHINE = "local rank"
    NODES = "node rank"
    GROUP = "rank in its group"


VARIABLES = {
    "RANK": RankScope.JOB,
    "SLURM_PROCID": RankScope.JOB,
    "OMPI_COMM_WORLD_RANK": RankScope.JOB,
    "PMI_RANK": RankScope.JOB,
    "PMIX_RANK": RankScope.JOB,
    "MV2_COMM_WORLD_RANK": RankScope.JOB,
    "LOCAL_RANK": RankScope.MACHINE,
    "SLURM_LOCALID": RankScope.MACHINE,
    "OMPI_COMM_WORLD_LOCAL_RANK": RankScope.MACHINE,
    "MPI_LOCALRANKID": RankScope.MACHINE,
    "GROUP_RANK": RankScope.NODES,
    "NODE_RANK": RankScope.NODES,
    "SLURM_NODEID": RankScope.NODES,
}
"""of the environment"""
OWN = r"(ddp_|dist_|distributed_|hvd_|mpi_|my_|this_|self_|cur_|current_)?"
PARALLEL = (
    r"(dp|tp|pp|ep|cp|sp|mp|etp|(data|tensor|tensor_model|model|pipeline|pipeline_model|expert"
    r"|expert_model|expert_data|sequence|context)_parallel)_rank"
)
LOCAL = rf"_?{OWN}(local_(rank|process_index|proc_id|process_id|ordinal)|localrank|localid)"
NODE = r"_?(node_rank|machine_rank|group_rank)"
JOB = (
    rf"_?({OWN}(global_|world_|process_|proc_)?rank(_id|_idx|_index)?|process_index|proc_id|procid"
    r"|(global|world)_process_index)"
)
NUMBERS = (
    (LOCAL, RankScope.MACHINE),
    (NODE, RankScope.NODES),
    (JOB, RankScope.JOB),
    (rf"_?{PARALLEL}", RankScope.GROUP),
)
PATTERNS = [(re.compile(pattern), of) for pattern, of in NUMBERS]
GETTERS = re.compile(
    r"_?(get_)?(?P<of>(local_|global_|world_|node_|my_)?rank|rank_id|ordinal|local_ordinal"
    rf"|process_index|node_local_rank|{PARALLEL})"
)
"""functions and methods that answer with a rank number"""
FLAGS = re.compile(
    r"_?(is_|am_i_|on_|if_)?((local_)?(main|master|primary|chief)"
    r"(_process|_proc|_rank|_worker|_ordinal)?"
    r"|rank_?(0|zero)|(first|zeroth)_(rank|process)|(global|world|local)_(rank_)?zero"
    r"|(local_|world_)?process_zero|coordinator)"
)
"""names of what is true on one rank: is_main_process, master_process, is_global_zero"""
LONE_FLAGS = frozenset(
    ["main", "master", "primary", "chief", "coordinator", "rank0", "rank_0", "rank_zero"]
)
"""without an is_ before them they mean other things as well"""
WORLD = re.compile(
    r"world|(get_)?\w*(world_size|num_processes|nprocs|n_procs|num_ranks|nranks|n_ranks|ngpus\w*)"
)
CHOSEN = re.compile(r"(src|dst|source|root|target|master|main|chief|leader|owner|\w+_rank)")
DISTRIBUTED_FLAGS = re.compile(
    r"_?(is_|use_|in_|args_)?(distributed|ddp|dist|multi_gpu|multiprocess\w*|initialized|available"
    r"|multi_node|parallel)(_\w+)?"
)


def number_name(name: str) -> RankScope | None:
    """Whose rank number a variable, attribute or parameter of this name holds."""
    return next((of for pattern, of in PATTERNS if pattern.fullmatch(name.lower())), None)


def getter_name(name: str) -> RankScope | None:
    """Whose rank number a call of this name returns."""
    told = GETTERS.fullmatch(name)
    if not told:
        return None
    return number_name(told["of"]) or (RankScope.MACHINE if "local" in name else RankScope.JOB)


def flag_name(name: str) -> RankScope | None:
    """Among whom the one is counted for which a flag or question of this name is true."""
    if not FLAGS.fullmatch(name) or name.lstrip("_") in LONE_FLAGS:
        return None
    return RankScope.MACHINE if "local_" in name else RankScope.JOB


def names_a_rank(name: str) -> bool:
    """`src`, `root`, `save_rank`: a variable that names one rank of all."""
    return bool(CHOSEN.fullmatch(name))


def is_world_size(node: ast.expr) -> bool:
    return bool(WORLD.fullmatch(last_word(node)))


def asks_if_distributed(node: ast.expr) -> bool:
    """`dist.is_initialized()`, `args.distributed`, `world_size > 1`, `local_rank != -1`: whether
    the question is about there being several ranks at all."""
    return any(_is_about_distributed(part) for part in _parts(node))


def _is_about_distributed(node: ast.expr) -> bool:
    if isinstance(node, ast.Compare):
        return is_world_size(node.left) or any(integer(one) == -1 for one in node.comparators)
    return bool(DISTRIBUTED_FLAGS.fullmatch(last_word(node)))


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _parts(value)
    elif isinstance(node, ast.UnaryOp):
        yield from _parts(node.operand)
    else:
        yield node


def last_word(node: ast.expr) -> str:
    """'world_size' of `self.args.world_size`, 'get_rank' of `dist.get_rank()`."""
    return dotted(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def integer(node: ast.expr) -> int | None:
    """The value of `3`, `-1` and of `"0"`, which is how the environment writes it."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = integer(node.operand)
        return None if inner is None else -inner
    value = constant(node)
    if isinstance(value, str) and value.lstrip("-").isdecimal():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
