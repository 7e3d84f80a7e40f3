"""Calls at which the ranks meet: collectives of torch and of the frameworks on top of it.

A rank that makes such a call waits for the other members of its group, so all must make it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.collectives.torch_calls import COLLECTIVES, NEW_GROUPS, distributed
from holdfast.analysis.source.program import Call, Program, constant, dotted
from holdfast.analysis.source.python.name_values import names

JOINING = NEW_GROUPS | {"init_process_group"}
TAILS = ("", "_", "_async", "_async_", "_object")
FRAMEWORKS = frozenset(
    [
        *(f"horovod.torch.allreduce{tail}" for tail in TAILS),
        *(f"horovod.torch.allgather{tail}" for tail in TAILS),
        *(f"horovod.torch.broadcast{tail}" for tail in TAILS),
        *(f"horovod.torch.alltoall{tail}" for tail in TAILS),
        "horovod.torch.broadcast_parameters",
        "horovod.torch.broadcast_optimizer_state",
        "horovod.torch.barrier",
        "horovod.torch.join",
        "torch_xla.core.xla_model.rendezvous",
        "torch_xla.core.xla_model.all_reduce",
        "torch_xla.core.xla_model.all_gather",
        "accelerate.utils.gather",
        "accelerate.utils.gather_object",
        "accelerate.utils.broadcast",
        "accelerate.utils.broadcast_object_list",
        "accelerate.utils.reduce",
        "accelerate.utils.wait_for_everyone",
        "torch.distributed.device_mesh.init_device_mesh",
        "torch.distributed.init_device_mesh",
        "torch.distributed.checkpoint.save",
        "torch.distributed.checkpoint.load",
        "torch.distributed.checkpoint.async_save",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
    ]
)
OF_TRAINERS = ("save_checkpoint", "fit", "validate", "test")
OBJECTS = {
    "lightning.Trainer": OF_TRAINERS,
    "lightning.pytorch.Trainer": OF_TRAINERS,
    "pytorch_lightning.Trainer": OF_TRAINERS,
    "accelerate.Accelerator": ("wait_for_everyone", "gather", "gather_for_metrics", "reduce"),
    "accelerate.PartialState": ("wait_for_everyone",),
    "accelerate.state.PartialState": ("wait_for_everyone",),
    "lightning.Fabric": ("barrier", "all_gather", "all_reduce", "broadcast", "save"),
    "lightning.fabric.Fabric": ("barrier", "all_gather", "all_reduce", "broadcast", "save"),
    "lightning_fabric.Fabric": ("barrier", "all_gather", "all_reduce", "broadcast", "save"),
    "deepspeed.initialize": ("save_checkpoint", "load_checkpoint", "backward"),
    "torch.distributed.fsdp.FullyShardedDataParallel": ("", "state_dict"),
    "holdfast.Checkpoint": ("save", "resume"),
    "holdfast.integrations.accelerate.AcceleratorCheckpoint": ("save", "resume"),
    "holdfast.integrations.transformers.TrainerCheckpoint": ("train",),
}
"""what a call makes -> its methods that all ranks must call; '': calling the object itself"""
METHODS = frozenset(method for methods in OBJECTS.values() for method in methods if method)
BY_NAME = {
    "accelerator": OBJECTS["accelerate.Accelerator"],
    "fabric": ("barrier", "all_gather", "all_reduce"),
}
"""names so usual that they tell without showing where it was made"""
GROUP_AT = {
    "all_reduce": 2,
    "broadcast": 2,
    "reduce": 3,
    "all_gather": 2,
    "all_gather_object": 2,
    "all_gather_into_tensor": 2,
    "gather": 3,
    "gather_object": 3,
    "scatter": 3,
    "reduce_scatter": 3,
    "reduce_scatter_tensor": 3,
    "barrier": 0,
    "all_to_all": 2,
    "all_to_all_single": 4,
    "broadcast_object_list": 2,
    "scatter_object_list": 3,
    "monitored_barrier": 0,
    "_all_gather_base": 2,
    "_reduce_scatter_base": 3,
}
"""position of `group` (torch 2.13.0, distributed_c10d.py)"""
CONCERNED = re.compile(
    r"[Dd]istributed|horovod|deepspeed|accelerat|[Ff]abric|torch_xla|[Ll]ightning|holdfast"
)
OF_OBJECTS = re.compile(
    r"accelerat|[Ff]abric|deepspeed\.init|FullyShardedDataParallel|[Ll]ightning"
    r"|holdfast"
)
WHOLE = ("torch.distributed.group.WORLD", "torch.distributed.GroupMember.WORLD")


class CollectiveCall(NamedTuple):
    """One call at which ranks wait for each other."""

    name: str
    """'all_reduce', 'wait_for_everyone'"""
    call: Call
    group: str = ""
    """as written; '' for all ranks, '?' where it hides behind a star"""

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.group

    @property
    def title(self) -> str:
        return f"{self.call.written} (line {self.call.node.lineno})"


def collective_calls(program: Program) -> Iterator[CollectiveCall]:
    """Every call of a script at which ranks meet, in order of the text."""
    if not CONCERNED.search(program.text):
        return
    objects = bool(OF_OBJECTS.search(program.text))
    for call in program.calls:
        found = _of_function(program, call) if call.name or program.stars else None
        if found is None and objects:
            found = _of_object(program, call)
        if found is not None:
            yield found


def _of_function(program: Program, call: Call) -> CollectiveCall | None:
    """None of a call that one rank may make alone."""
    name = distributed(program, call)
    if name in COLLECTIVES:
        return CollectiveCall(name, call, _group(program, call, name))
    if name in JOINING:
        # A group of another size may be meant for some ranks only.
        sized = name == "init_process_group" and call.argument(3, "world_size") is not None
        alone = sized or constant(call.keyword("use_local_synchronization")) is True
        return None if alone else CollectiveCall(name, call, _group(program, call, name))
    if call.name in FRAMEWORKS:
        alone = constant(call.keyword("no_dist")) is True or bool(call.keyword("process_group"))
        return None if alone else CollectiveCall(call.method, call, _group(program, call, ""))
    return None


def _group(program: Program, call: Call, name: str) -> str:
    position = GROUP_AT.get(name, 99)
    given = call.argument(position, "group") or call.keyword("parent_pg")
    if given is None:
        return "?" if call.starred else ""
    if (isinstance(given, ast.Constant) and given.value is None) or (
        program.name_of(given) in WHOLE
    ):
        return ""
    return ast.unparse(given)


def _of_object(program: Program, call: Call) -> CollectiveCall | None:
    """`accelerator.gather(x)`, `engine.save_checkpoint(d)`, `model(x)` of an FSDP model."""
    function = call.node.func
    if isinstance(function, ast.Attribute) and function.attr in METHODS:
        made, method = function.value, function.attr
        last = dotted(made).rpartition(".")[2]
    elif isinstance(function, ast.Name) and function.id in program.bound:
        made, method, last = function, "", ""
    else:
        return None
    if method == "all_gather" and last == "self" and _in_a_lightning_module(program, call):
        return CollectiveCall(method, call)
    if method in BY_NAME.get(last, ()) or any(
        method in OBJECTS.get(maker, ()) for maker in _makers(program, made)
    ):
        return CollectiveCall(method or call.written, call)
    return None


def _in_a_lightning_module(program: Program, call: Call) -> bool:
    owner = next((a for a in program.above(call.node) if isinstance(a, ast.ClassDef)), None)
    bases = owner.bases if owner else []
    return any(dotted(base).rpartition(".")[2] == "LightningModule" for base in bases)


def _makers(program: Program, node: ast.expr) -> Iterator[str]:
    """The dotted names of the calls that made what a name stands for."""
    values = names(program).values(dotted(node), node)
    if not values:
        values = [*_unpacked(program, node), *_wrapped(program, node)]
        yield from _declared(program, node)
    for value in (node, *values):
        if isinstance(value, ast.Call):
            yield program.name_of(value.func)


def _declared(program: Program, node: ast.expr) -> Iterator[str]:
    """`def save(model: FSDP)`: the class that a parameter says it is of."""
    function = program.function_of(node)
    if function is not None and isinstance(node, ast.Name):
        for one in [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]:
            if one.arg == node.id and one.annotation is not None:
                yield program.name_of(one.annotation)


def _unpacked(program: Program, node: ast.expr) -> Iterator[ast.expr]:
    """`engine, optimizer, _, _ = deepspeed.initialize(…)`: the engine comes first."""
    for call in program.called("deepspeed.initialize"):
        assign = program.parents.get(call.node)
        made = assign.targets[0] if isinstance(assign, ast.Assign) else None
        if isinstance(made, ast.Tuple) and dotted(made.elts[0]) == dotted(node) != "":
            yield call.node


def _wrapped(program: Program, node: ast.expr) -> Iterator[ast.expr]:
    """`model = FSDP(model)` of a parameter, before this and under no condition."""
    function = program.function_of(node)
    for assign in program.assigns:
        if program.parents.get(assign) is function and isinstance(assign, ast.Assign):
            named = any(dotted(target) == dotted(node) != "" for target in assign.targets)
            if named and assign.lineno < node.lineno:
                yield assign.value
