"""How many ranks a script is started with, and so whether a condition on the rank parts them.

if rank in [0, 1, 2, 3]:        all ranks of a job of four, and half of a job of eight
    dist.barrier()
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.analysis.source.launch import command_line
from holdfast.analysis.source.program import Program, constant
from holdfast.analysis.source.python.name_values import names
from holdfast.analysis.source.ranks.branches import RankSplit
from holdfast.analysis.source.ranks.rank_names import RankScope
from holdfast.analysis.source.source import Launch


def is_split(split: RankSplit, program: Program, launches: Sequence[Launch]) -> bool | None:
    """Whether it holds on some ranks and not on others; None: that depends on their number."""
    if not split.first:
        return True
    counts = {*_written(program, split.scope), *_launched(launches, split.scope)}
    if not counts or None in counts:
        return None
    parted = {count is not None and count > split.first for count in counts}
    return parted.pop() if len(parted) == 1 else None


def _written(program: Program, scope: RankScope) -> Iterable[int | None]:
    """`mp.spawn(work, nprocs=4)` and `init_process_group(…, world_size=4)` in the script."""
    for call in program.calls:
        count = None
        if call.method == "init_process_group" and scope is RankScope.JOB:
            count = call.argument(3, "world_size")
        elif call.name.endswith("multiprocessing.spawn") or call.method == "spawn":
            count = call.argument(2, "nprocs")
        value = constant(names(program).follow(count)) if count is not None else None
        if isinstance(value, int) and value > 0:
            yield value


def _launched(launches: Sequence[Launch], scope: RankScope) -> Iterable[int | None]:
    for launch in launches:
        if launch.kind == "python":
            continue  # the script itself starts the ranks, or there is one
        if launch.kind not in command_line.TORCHRUN:
            yield None
            continue
        told = launch.flag("nproc-per-node")
        local = command_line.number(told) if told is not None else 1
        nodes = command_line.nodes(launch) if launch.flag("nnodes") is not None else (1, 1)
        if local is None or nodes is None or command_line.hides_flags(launch):
            yield None
        elif scope is RankScope.MACHINE:
            yield local
        else:
            yield local * nodes[1] if scope is RankScope.JOB else None
