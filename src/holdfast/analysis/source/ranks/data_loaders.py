"""Loaders of a training: which are for evaluation, and which give every rank all of the data.

    model = DistributedDataParallel(model)
    loader = DataLoader(data, shuffle=True)      no sampler: each rank draws from the whole data

Many scripts deal out their data in another way: a sampler, a trainer that puts one in, a data set
that asks for its rank, another loader in the other branch. Any word of these, and nothing is said.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.checkpoints.training_state import bound_to, first_backward
from holdfast.analysis.source.program import Call, Program, constant, dotted, once_per_program
from holdfast.analysis.source.python.flow import callers
from holdfast.analysis.source.python.name_values import names

TRAINERS = re.compile(
    r"(?:pytorch_)?lightning|accelerate|transformers\.\w*Trainer|ray\.train|ignite"
)
"""they deal the data out, and call set_epoch themselves"""

EVALUATION = re.compile(
    r"(?i)(?:^|[^a-z])(?:eval|val|valid|test|dev)(?:$|[^a-z]|set|data|sampler|load)"
    r"|evaluat|validat|infer|predict|calib"
)
"""data whose order makes no difference"""

LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
WRAPPERS = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_shard",
)
DEALT_OUT = re.compile(
    r"(?i)sampler|prepare|setup_dataloaders|split_dataset|\bsubset\b|\.shard\(|shard_|islice"
    r"|mesh|process_group=|pipeline|tensor_parallel|deepspeed|horovod|fairscale|torchrec"
)
"""words of a script that may deal its data out in its own way, or whose ranks need equal data"""
BY_RANK = re.compile(r"(?i)rank|world|replica|shard|part(?:ition)?\b|worker_info|distribut")
MADE_UP = re.compile(r"(?i)fake|dummy|random|synthetic|mock")
PLAIN = (
    *("torchvision.datasets.", "torch.utils.data.TensorDataset"),
    *("builtins.list", "builtins.range"),
)
OTHERWISE = re.compile(r"(?i)dist|rank|world|ddp|parallel|gpu|multi")
"""in a condition: the script has another loader for several ranks"""


class WholeData(NamedTuple):
    loader: Call
    wrap: Call
    sure: bool
    """the data set is one that holds all of its samples"""


def uses_a_trainer(program: Program) -> bool:
    return any(TRAINERS.match(name) for name in (*program.imports.values(), *program.stars))


def evaluates(program: Program, call: Call) -> bool:
    """A sampler or loader for evaluation: by its own name, that of its data, or of all callers."""
    data = call.argument(0, "dataset")
    words = [*bound_to(program, [call]), ast.unparse(data) if data is not None else ""]
    function = program.function_of(call.node)
    users = callers(program, function) if function is not None else []
    asking = [f.name if (f := program.function_of(one.node)) else "" for one in users]
    return any(map(EVALUATION.search, words)) or (
        bool(asking) and all(map(EVALUATION.search, asking))
    )


@once_per_program
def whole_data(program: Program) -> list[WholeData]:
    """Loaders of a data-parallel training that shuffle all of the data on every rank."""
    wraps = program.called(*WRAPPERS)
    trains = wraps and first_backward(program) is not None
    if not trains or uses_a_trainer(program) or DEALT_OUT.search(program.text):
        return []
    return list(_unsplit(program, wraps[0]))


def _unsplit(program: Program, wrap: Call) -> Iterator[WholeData]:
    for call in program.called(*LOADERS):
        data = call.argument(0, "dataset")
        if data is None or call.starred or constant(call.argument(2, "shuffle")) is not True:
            continue
        made = names(program).follow(data)
        texts = [ast.unparse(data), ast.unparse(made), _class_text(program, made)]
        if any(BY_RANK.search(text) or MADE_UP.search(text) for text in texts):
            continue
        if not evaluates(program, call) and not _one_of_two(program, call):
            yield WholeData(call, wrap, sure=_holds_all(program, made))


def _class_text(program: Program, made: ast.expr) -> str:
    """Of the class or function of this file that makes the data set."""
    if not isinstance(made, ast.Call):
        return ""
    name = dotted(made.func)
    own = [node for node in (*program.classes, *program.functions) if node.name == name]
    return "\n".join(ast.unparse(node) for node in own)


def _one_of_two(program: Program, call: Call) -> bool:
    """In a branch that may be for one rank alone, or in a function that serves both."""
    for above in program.above(call.node):
        if isinstance(above, ast.If | ast.IfExp) and OTHERWISE.search(ast.unparse(above.test)):
            return True
    mine = bound_to(program, [call])
    others = [one for one in program.called(*LOADERS) if one is not call]
    return bool(mine & bound_to(program, others))


def _holds_all(program: Program, made: ast.expr) -> bool:
    if not isinstance(made, ast.Call):
        return isinstance(made, ast.List | ast.ListComp)
    name = program.name_of(made.func)
    return name.startswith(PLAIN) or bool(_class_text(program, made))
