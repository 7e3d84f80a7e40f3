"""Which ranks a condition lets through."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.ranks.branches import RankSplit
from holdfast.analysis.source.ranks.rank_dependence import RankQuestions
from holdfast.analysis.source.ranks.rank_names import RankScope
from tests.analysis.source.made_sources import python

BEFORE = """
import os
import torch.distributed as dist
from torch.distributed import get_rank
import horovod.torch as hvd


def is_boss():
    return dist.get_rank() == 0


class Trainer:
    def __init__(self):
        self.number = dist.get_rank()
        self.boss = self.number == 0

    def step(self, args, accelerator, ranks, world_size, debug):
        mine = int(os.environ["RANK"])
        boss = mine == 0
        rank = 0 if not dist.is_initialized() else dist.get_rank()
        for other in range(world_size):
            pass
        first = 2
        if CONDITION:
            pass
"""


def split(condition: str) -> RankSplit | None:
    program = python(BEFORE.replace("CONDITION", condition)).program
    assert program is not None
    return RankQuestions(program).split(program.ifs[-1].test)


@pytest.mark.parametrize(
    "condition",
    [
        "rank == 0",
        "0 == rank",
        "not rank",
        "rank < 1",
        "mine == 0",
        "boss",
        "self.boss",
        "not self.number",
        "is_boss()",
        "get_rank() == 0",
        "hvd.rank() == 0",
        "dist.get_rank() == 0 and debug",
        "world_size > 1 and rank == 0",
        "rank == 0 or not dist.is_initialized()",
        "rank == 0 or world_size == 1",
        "args.local_rank in (-1, 0)",
        "args.local_rank == -1 or args.local_rank == 0",
        "accelerator.is_main_process",
        "accelerator.is_local_main_process",
        "self.trainer.is_global_zero",
        "accelerator.process_index == 0",
        "os.environ.get('RANK', '0') == '0'",
        "int(os.environ['SLURM_PROCID']) == 0",
        "os.getenv('LOCAL_RANK') == '0'",
        "(r := dist.get_rank()) == 0",
        "is_main_process()",
        "utils.is_master()",
    ],
)
def test_rank_zero_alone(condition: str) -> None:
    found = split(condition)
    assert found is not None
    assert found.zero is True
    assert found.sure


@pytest.mark.parametrize(
    "condition",
    [
        "rank",
        "rank != 0",
        "rank > 0",
        "rank >= 1",
        "not boss",
        "not accelerator.is_main_process",
        "args.local_rank not in [-1, 0]",
        "not (rank == 0)",
    ],
)
def test_all_but_rank_zero(condition: str) -> None:
    found = split(condition)
    assert found is not None
    assert found.zero is False


@pytest.mark.parametrize(
    ("condition", "sure"),
    [
        ("rank == 3", True),
        ("rank == first", True),
        ("rank == src", True),
        ("rank == world_size - 1", True),
        ("rank % 2 == 0", True),
        ("not rank % 8", True),
        ("rank in (0, 4)", True),
        ("rank < 4", True),
        ("rank in ranks", False),
        ("0 < rank < debug", False),
    ],
)
def test_some_ranks(condition: str, sure: bool) -> None:
    found = split(condition)
    assert found is not None
    assert found.zero is None
    assert found.sure is sure


@pytest.mark.parametrize(
    "condition",
    [
        "world_size > 1",
        "rank is None",
        "rank is not None",
        "args.local_rank != -1",
        "args.local_rank == -1",
        "args.local_rank >= 0",
        "args.local_rank > -1",
        "rank < world_size",
        "rank < dist.get_world_size()",
        "rank == other",
        "rank == args.local_rank",
        "'RANK' in os.environ",
        "int(os.environ.get('RANK', -1)) != -1",
        "world_size == 1 and rank == 0",
        "not dist.is_initialized() and rank == 0",
        "rank == 0 or debug",
        "rank == self.SOME_CONSTANT",
        "rank == args.shard",
        "other == 0",
        "first == 0",
        "debug",
        "dist.get_world_size(rank) == 0",
        "all(rank == 0 for rank in ranks)",
        "ranks[0] == 0",
        "args.main == 0",
        "args.rank0",
    ],
)
def test_the_same_on_every_rank_or_unknown(condition: str) -> None:
    assert split(condition) is None


def test_whose_number_it_is() -> None:
    groups = {
        "rank == 1": RankScope.JOB,
        "args.local_rank == 1": RankScope.MACHINE,
        "args.node_rank == 1": RankScope.NODES,
        "mpu.get_tensor_model_parallel_rank() == 1": RankScope.GROUP,
        "dist.get_rank(group=self.cells) == 1": RankScope.GROUP,
    }
    found = {condition: split(condition) for condition in groups}
    assert {c: s.scope for c, s in found.items() if s} == groups
    cell = found["dist.get_rank(group=self.cells) == 1"]
    assert cell is not None
    assert cell.group == "self.cells"


NUMBERS = st.integers(-2, 9)
COMPARED = st.builds(
    "{} {} {}".format, st.just("rank"), st.sampled_from(["==", "!=", "<", ">", "<=", ">="]), NUMBERS
)
TURNED = st.builds("{} {} rank".format, NUMBERS, st.sampled_from(["==", "<", ">", "<=", ">="]))
MEMBERS = st.builds(
    "rank {} {}".format, st.sampled_from(["in", "not in"]), st.lists(NUMBERS, min_size=1)
)
CONDITIONS = st.recursive(
    COMPARED | TURNED | MEMBERS | st.just("rank"), lambda inner: st.builds("not ({})".format, inner)
)


@given(CONDITIONS)
def test_what_is_said_of_a_condition_holds_for_every_rank(condition: str) -> None:
    """Ranks 0 to 9 evaluate it; what was read off the text must agree."""
    program = python(f"import torch.distributed as dist\nif {condition}:\n    pass").program
    assert program is not None
    found = RankQuestions(program).split(program.ifs[0].test)
    tree = compile(ast.Expression(program.ifs[0].test), "condition", "eval")
    through = [rank for rank in range(10) if eval(tree, {"rank": rank})]
    if found is None:
        assert through in ([], list(range(10)))
    elif found.zero is True:
        assert through == [0]
    elif found.zero is False:
        assert through == list(range(1, 10))
