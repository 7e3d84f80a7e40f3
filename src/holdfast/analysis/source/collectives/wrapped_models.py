"""A model that is changed after DistributedDataParallel has taken hold of it.

    model = DDP(Net())      hooks on the gradients of these parameters
    model.to("cuda")        the parameters get others, which have no hooks

Only where the text shows how the model was made, and that nothing had moved it before: a move to
where the parameters already are changes nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.program import Call, Program, constant, dotted, once_per_program
from holdfast.analysis.source.python.flow import may_reach
from holdfast.analysis.source.python.name_values import names

DDP = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)
TYPES = frozenset({"half", "bfloat16", "double"})
MOVES = frozenset({"to", "cuda", "xpu", *TYPES})
"""methods that give parameters new storage; not `cpu`, which ends a training"""
SMALLER = re.compile(r"torch\.(?:float16|bfloat16|half|float64|double)")
PLACED = re.compile(r"\bto\(|\.cuda\(|\.xpu\(|device|\.half\(|\.bfloat16\(|\.double\(|dtype|cuda")
"""in the text that makes a model: it may be where it is moved to later"""
ANYWHERE = ("torch.set_default_device", "torch.set_default_dtype", "torch.set_default_tensor_type")
LIBRARY = ("torch.nn.", "torchvision.models.")
"""of which it is known that a new module is in the memory of the host"""


class ChangedModel(NamedTuple):
    wrap: Call
    change: Call
    again: bool
    """wrapped a second time; else moved, or its numbers changed"""
    sure: bool
    """the class of the model is known, and leaves it in the memory of the host"""


@once_per_program
def changed_models(program: Program) -> list[ChangedModel]:
    wraps = [call for call in program.called(*DDP) if not call.starred]
    if not wraps or program.called(*ANYWHERE):
        return []
    found: dict[ast.Call, ChangedModel] = {}
    for wrap in wraps:
        for one in (*_again(program, wrap, wraps), *_moved(program, wrap)):
            found.setdefault(one.change.node, one)
    return list(found.values())


def _again(program: Program, wrap: Call, wraps: list[Call]) -> Iterator[ChangedModel]:
    name = _target(program, wrap)
    for other in wraps:
        given = other.argument(0, "module")
        nested = given is wrap.node
        same = name and given is not None and dotted(given) == name
        if nested or (same and _comes_after(program, wrap, other, {name})):
            yield ChangedModel(wrap, other, again=True, sure=True)


def _moved(program: Program, wrap: Call) -> Iterator[ChangedModel]:
    made = _makers(program, wrap)
    if not made or any(PLACED.search(text) for text in made.values()):
        return
    given = wrap.argument(0, "module")
    tracked = {_target(program, wrap), dotted(given) if given is not None else ""} - {""}
    on_device = wrap.keyword("device_ids") is not None
    sure = all(_stays_in_memory(program, maker) for maker in made)
    moves = [call for call in program.calls if _is_move(call, on_device=on_device)]
    if any(_base(call) in tracked and may_reach(program, call.node, wrap.node) for call in moves):
        return  # moved before, too
    for call in moves:
        chained = isinstance(call.node.func, ast.Attribute) and call.node.func.value is wrap.node
        if chained or (_base(call) in tracked and _comes_after(program, wrap, call, tracked)):
            yield ChangedModel(wrap, call, again=False, sure=sure)


def _base(call: Call) -> str:
    return call.written.rpartition(".")[0].removesuffix(".module")


def _is_move(call: Call, *, on_device: bool) -> bool:
    """`on_device`: it was on a GPU when it was wrapped, or DDP would have refused it."""
    if not isinstance(call.node.func, ast.Attribute) or call.node.func.attr not in MOVES:
        return False
    method = call.node.func.attr
    if method in TYPES:
        return True
    if method != "to":
        return not on_device
    words = [ast.unparse(one) for one in (*call.node.args, *(k.value for k in call.node.keywords))]
    if any(SMALLER.search(word) for word in words):
        return True
    target = call.argument(0, "device")
    named = constant(target) if target is not None else None
    return not on_device and isinstance(named, str) and named.startswith(("cuda", "xpu"))


def _target(program: Program, wrap: Call) -> str:
    """The name that stands for the wrapped model."""
    node = program.parents.get(wrap.node)
    plain = isinstance(node, ast.Assign) and len(node.targets) == 1 and node.value is wrap.node
    return dotted(node.targets[0]) if isinstance(node, ast.Assign) and plain else ""


def _makers(program: Program, wrap: Call) -> dict[ast.Call, str]:
    """The calls that may have made the model, with their text; none where one is not a class."""
    given = wrap.argument(0, "module")
    if given is None:
        return {}
    values = [given] if isinstance(given, ast.Call) else names(program).values(dotted(given), given)
    made: dict[ast.Call, str] = {}
    for value in values:
        if value is wrap.node or value.lineno > wrap.node.lineno:
            continue
        name = dotted(value.func).rpartition(".")[2] if isinstance(value, ast.Call) else ""
        if not isinstance(value, ast.Call) or not (name[:1].isupper() or _library(program, value)):
            return {}
        made[value] = ast.unparse(value)
    return made


def _library(program: Program, maker: ast.Call) -> bool:
    return program.name_of(maker.func).startswith(LIBRARY)


def _stays_in_memory(program: Program, maker: ast.Call) -> bool:
    own = [one for one in program.classes if one.name == dotted(maker.func)]
    return _library(program, maker) or (
        len(own) == 1 and PLACED.search(ast.unparse(own[0])) is None
    )


def _comes_after(program: Program, wrap: Call, then: Call, tracked: set[str]) -> bool:
    """Whether the same object gets there, and as it is: no training in between, whose end a move
    may well be, and no hands through which it goes."""
    if program.function_of(wrap.node) is not program.function_of(then.node):
        return False
    if not may_reach(program, wrap.node, then.node) or _on_conditions(program, wrap, then):
        return False
    first, last = wrap.node.lineno, then.node.lineno
    for loop in program.loops:
        if first < loop.lineno <= last:
            return False
    for assign in program.assigns:
        targets = assign.targets if isinstance(assign, ast.Assign) else [assign.target]
        if first < assign.lineno < last and tracked & {dotted(one) for one in targets}:
            return False
    between = (call for call in program.calls if first < call.node.lineno < last)
    return not any(
        call.method == "backward" or tracked & {dotted(one) for one in call.node.args}
        for call in between
    )


def _on_conditions(program: Program, wrap: Call, then: Call) -> bool:
    """Both under conditions of their own, which may exclude each other."""
    deciders = (ast.If, ast.IfExp, ast.Try, ast.ExceptHandler, ast.Match, ast.BoolOp)
    first, second = (
        {above for above in program.above(call.node) if isinstance(above, deciders)}
        for call in (wrap, then)
    )
    return bool(first - second) and bool(second - first)
