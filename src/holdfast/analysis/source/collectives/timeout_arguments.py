"""Where a script gives a timeout to torch or a framework, and what that place takes.

Measured with torch 2.13: Python's side refuses anything but a timedelta; what goes straight to
C++ (stores, Work.wait, barrier) takes a float as seconds, and refuses an int.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.collectives.torch_calls import (
    ACCELERATORS,
    AT_ONCE,
    COLLECTIVES,
    OF_FRAMEWORKS,
    POINT_TO_POINT,
    STORES,
    TAKES_TIMEOUT,
    distributed,
    torch_ops,
)
from holdfast.analysis.source.program import Call, Program, constant, dotted, once_per_program
from holdfast.analysis.source.python.name_values import names

POSITIONS = {
    "init_process_group": 2,
    "new_group": 1,
    "new_subgroups": 2,
    "new_subgroups_by_enumeration": 1,
    "split_group": 2,
    "monitored_barrier": 1,
    "barrier": 3,
}
TAKE_FLOATS = frozenset(["monitored_barrier", "barrier"])
KEYWORD_ONLY = 99
"""a position that no call reaches"""
ELSEWHERE = {
    "deepspeed.init_distributed": 4,
    "deepspeed.comm.init_distributed": 4,
    "deepspeed.comm.comm.init_distributed": 4,
    "accelerate.InitProcessGroupKwargs": 2,
    "accelerate.utils.InitProcessGroupKwargs": 2,
    "accelerate.utils.dataclasses.InitProcessGroupKwargs": 2,
    **dict.fromkeys(ACCELERATORS - {"accelerate.Accelerator"}, KEYWORD_ONLY),
}
"""what hands its timeout on to init_process_group"""
WITHOUT = frozenset(["destroy_process_group", "init_device_mesh"])
OTHERS_WITHOUT = frozenset(
    [
        *OF_FRAMEWORKS,
        "torch.distributed.device_mesh.init_device_mesh",
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
    ]
)
LIGHTNING = ("lightning.", "pytorch_lightning.", "lightning_fabric.")


class TimeoutArgument(NamedTuple):
    """A place where a timeout is given."""

    call: Call
    value: ast.expr
    function: str
    """'init_process_group', 'TCPStore', 'wait'"""
    floats: bool
    """whether a float is taken as seconds"""


@once_per_program
def timeout_arguments(program: Program) -> tuple[TimeoutArgument, ...]:
    """Every timeout that must be a timedelta, in order of the text."""
    return tuple(_timeout_arguments(program))


def _timeout_arguments(program: Program) -> Iterator[TimeoutArgument]:
    for call in program.calls:
        function, position, floats = _taker(program, call)
        value = call.argument(position, "timeout") if function else None
        if value is not None:
            yield TimeoutArgument(call, value, function, floats)


def _taker(program: Program, call: Call) -> tuple[str, int, bool]:
    """Its name, where its timeout is given, whether it takes a float; ('', …) for other calls."""
    func = call.node.func
    last = func.attr if isinstance(func, ast.Attribute) else call.method
    op = distributed(program, call)
    if op in POSITIONS:
        return op, POSITIONS[op], op in TAKE_FLOATS
    position, floats = -1, True
    if op == "TCPStore":
        position = 4
    elif call.name in ELSEWHERE:
        position, floats = ELSEWHERE[call.name], False
    elif call.name.startswith(LIGHTNING) and last.endswith("Strategy"):
        position, floats = KEYWORD_ONLY, False
    elif last == "wait" and is_work(program, func):
        position = 0
    elif last in ("wait", "set_timeout") and is_store(program, func):
        position = 1 if last == "wait" else 0
    return last if position >= 0 else "", position, floats


def takes_none(program: Program, call: Call) -> bool:
    """A function of torch that has no `timeout` parameter; barrier is left to its version."""
    op = distributed(program, call)
    if call.name.startswith("deepspeed.comm") and op in ("new_group", "barrier"):
        return True
    if op in TAKES_TIMEOUT or op == "barrier":
        return False
    return op in COLLECTIVES | POINT_TO_POINT | WITHOUT or call.name in OTHERS_WITHOUT


# --- what a method belongs to ---------------------------------------------------------------------


def is_work(program: Program, function: ast.expr) -> bool:
    """`X.wait` where X is what a collective with async_op=True, isend or irecv gave back."""
    if not isinstance(function, ast.Attribute) or not torch_ops(program):
        return False
    return any(_starts_work(program, value) for value in _origins(program, function.value))


def _starts_work(program: Program, value: ast.expr) -> bool:
    if not isinstance(value, ast.Call):
        return False
    call = Call(value, program.name_of(value.func), dotted(value.func))
    op = distributed(program, call)
    if op in COLLECTIVES:
        return constant(call.keyword("async_op")) is True
    return op in AT_ONCE or op == "batch_isend_irecv"


def _origins(program: Program, node: ast.expr) -> list[ast.expr]:
    """What it may be: itself, the values of its name, the members of what a loop goes over."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, ast.Call):
        return [node]
    if not isinstance(node, ast.Name | ast.Attribute):
        return []
    if found := names(program).values(dotted(node), node):
        return found
    for above in program.above(node):
        parts: list[ast.For | ast.comprehension] = [above] if isinstance(above, ast.For) else []
        if isinstance(above, ast.ListComp | ast.GeneratorExp):
            parts = [*above.generators]
        for part in parts:
            if dotted(part.target) == dotted(node):
                return _members(program, part.iter)
    return []


def _members(program: Program, over: ast.expr) -> list[ast.expr]:
    found: list[ast.expr] = []
    for value in names(program).values(dotted(over), over) if dotted(over) else [over]:
        if isinstance(value, ast.List | ast.Tuple):
            found += value.elts
        elif isinstance(value, ast.ListComp):
            found.append(value.elt)
        else:
            found.append(value)
    for call in program.calls:
        if call.method == "append" and call.written == f"{dotted(over)}.append":
            found += call.node.args
    return found


def is_store(program: Program, function: ast.expr) -> bool:
    """`X.wait` where X is a store that this file makes."""
    makes = any(op in STORES for _, op in torch_ops(program))
    if not makes or not isinstance(function, ast.Attribute):
        return False
    values = _origins(program, function.value)
    made = [program.name_of(value.func) for value in values if isinstance(value, ast.Call)]
    return any(
        name.startswith("torch.distributed.") and name.rpartition(".")[2] in STORES for name in made
    )
