"""`rank in [0, 1, 2, 3]` is everybody in a job of four."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.source import Source
from holdfast.catalogue import by_slug
from tests.analysis.source.made_sources import python, shell
from tests.faults.table import Remark, flags, leaves, lint_table

SCRIPT = """
import torch.distributed as dist
import torch.multiprocessing as mp
dist.init_process_group("gloo")
rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
if CONDITION:
    dist.barrier()
"""
FOUR = "torchrun --nproc-per-node 4 train.py"
EIGHT = "torchrun --nproc-per-node 4 --nnodes 2 --master-addr a --node-rank $N train.py"


def script(condition: str, *launches: str, more: str = "") -> Source:
    started_by = tuple(one for line in launches for one in shell(line).launches)
    return python(SCRIPT.replace("CONDITION", condition) + more, started_by=started_by)


def split(status: str, condition: str, *launches: str) -> Remark:
    unless = ["unless the job never has more than"] if status == "warning" else []
    return flags(
        status, script(condition, *launches), lines=[6], saying=["runs only where", *unless]
    )


test_lint = lint_table(
    "rank-conditional-code",
    leaves(script("rank in [0, 1, 2, 3]", FOUR)),
    leaves(script("rank < 4", FOUR)),
    leaves(script("rank == 0 or rank in (1, 2, 3)", FOUR)),
    leaves(script("local_rank in [0, 1, 2, 3]", EIGHT)),
    leaves(script("rank in [0, 1]", more="\nmp.spawn(work, nprocs=2)\n")),
    split("error", "rank in [0, 1, 2, 3]", EIGHT),
    split("error", "rank < 2", FOUR),
    split("error", "rank in [0, 1, 3]", FOUR),  # without rank 2
    split("error", "rank in [0, 4]"),
    split("error", "rank == 0"),
    split("error", "rank in [0]"),
    # how many there are is not known: it may be all of them
    split("warning", "rank in [0, 1, 2, 3]"),
    split("warning", "rank <= 3"),
    split("warning", "4 > rank"),
    split("warning", "rank >= 4"),
    split("warning", "not rank >= 4"),
    split("warning", "rank == 0 or rank == 1"),
    split("warning", "rank in [0, 1, 2, 3]", FOUR, EIGHT),
    split("warning", "rank in [0, 1]", "torchrun --nproc-per-node $N train.py"),
)


NUMBERS = st.integers(0, 6)
CONDITIONS = st.one_of(
    st.tuples(st.sampled_from(["<", "<=", ">", ">=", "=="]), NUMBERS).map(
        lambda drawn: f"rank {drawn[0]} {drawn[1]}"
    ),
    st.lists(NUMBERS, min_size=1, max_size=6).map(lambda ranks: f"rank in {ranks}"),
    st.lists(NUMBERS, min_size=2, max_size=4).map(
        lambda ranks: " or ".join(f"rank == {rank}" for rank in ranks)
    ),
)


@given(CONDITIONS, st.integers(2, 8))
def test_silent_only_where_all_ranks_go_the_same_way(condition: str, world: int) -> None:
    source = script(condition, f"torchrun --nproc-per-node {world} train.py")
    found = by_slug("rank-conditional-code").ask_lint(source)
    ways = {eval(condition, {"rank": rank}) for rank in range(world)}
    if len(ways) == 2:
        assert [one.status.value for one in found] == ["error"]
