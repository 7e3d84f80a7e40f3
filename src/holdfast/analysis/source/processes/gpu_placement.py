"""Which device the ranks of a script take: how each gets its own GPU, and what comes before.

torch.cuda.set_device(local_rank)      init_process_group(device_id=…)
model.to(f"cuda:{local_rank}")         DDP(model, device_ids=[local_rank])
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.program import Call, Function, Program, constant, dotted
from holdfast.analysis.source.python.name_values import names
from holdfast.analysis.source.ranks.rank_dependence import rank_questions
from holdfast.analysis.source.ranks.rank_names import RankScope

SETTERS = (
    "torch.cuda.set_device",
    "torch.accelerator.set_device_index",
    "torch.accelerator.set_device_idx",
)
BY_OTHERS = re.compile(
    r"VISIBLE_DEVICES|current_device|cuda:\{|gpus[-_]per[-_]task|gpu_id|local_device|accelerat"
    r"|deepspeed|lightning|ray\b|torch_xla"
)
"""words of a script that leaves it to a framework, or does it in its own way"""
CHOOSES = re.compile(rf"set_device|device_ids?\b|cuda:\d|{BY_OTHERS.pattern}")
"""words of a script that may give each rank its own device"""
MAKERS = frozenset(
    ["tensor", "zeros", "ones", "rand", "randn", "empty", "full", "arange", "randint", "eye"]
)
"""torch functions that make a tensor on the CPU unless told otherwise"""
MOVED_BY_DEFAULT = re.compile(r"set_default_device|set_default_tensor_type|with torch\.device")


class GpuUse(NamedTuple):
    """A call that puts something onto a CUDA device."""

    call: Call
    number: ast.expr | None
    """the number it names; None for 'the current one'"""


def gpu_uses(program: Program) -> Iterator[GpuUse]:
    """`.cuda()`, `.to("cuda")`, `torch.zeros(…, device="cuda")`, with the number they name."""
    for call in program.calls:
        attribute = call.node.func.attr if isinstance(call.node.func, ast.Attribute) else ""
        if attribute == "cuda" and not call.name.startswith("torch.cuda"):
            yield GpuUse(call, call.argument(0, "device"))
        elif attribute == "to" and call.node.args:
            yield from _device(program, call, call.node.args[0])
        if call.name.startswith("torch.") and (given := call.keyword("device")):
            yield from _device(program, call, given)


def _device(program: Program, call: Call, given: ast.expr) -> Iterator[GpuUse]:
    """A device as people write it: a string, torch.device(…), a number, a name for one of them."""
    value = names(program).follow(given)
    if isinstance(value, ast.Call) and program.name_of(value.func) == "torch.device":
        kind = value.args[0] if value.args else None
        if len(value.args) > 1 and constant(kind) == "cuda":
            yield GpuUse(call, value.args[1])
            return
        value = kind if kind is not None else value
    if constant(value) == "cuda":
        yield GpuUse(call, None)
    elif isinstance(value, ast.JoinedStr) and (number := _numbered(value)):
        yield GpuUse(call, number)
    elif isinstance(value, ast.Constant) and isinstance(value.value, str):
        number_said = re.fullmatch(r"cuda:(\d+)", value.value)
        if number_said:
            yield GpuUse(call, ast.copy_location(ast.Constant(int(number_said[1])), value))
    elif rank_questions(program).number(value):
        yield GpuUse(call, value)


def _numbered(text: ast.JoinedStr) -> ast.expr | None:
    """The number in f"cuda:{rank}"."""
    if len(text.values) != 2 or constant(text.values[0]) != "cuda:":
        return None
    last = text.values[1]
    return last.value if isinstance(last, ast.FormattedValue) else None


def choices(program: Program) -> Iterator[GpuUse]:
    """Everything that names a device by number: uses, set_device, device_ids=[…]."""
    yield from (use for use in gpu_uses(program) if use.number is not None)
    for call in program.calls:
        if call.name in SETTERS and call.node.args:
            yield GpuUse(call, call.node.args[0])
        ids = call.keyword("device_ids")
        if isinstance(ids, ast.List) and len(ids.elts) == 1:
            yield GpuUse(call, ids.elts[0])


def global_rank(program: Program, node: ast.expr | None) -> bool:
    """Whether a number surely is the rank in the whole job, taken as it is."""
    if node is None:
        return False
    asked = rank_questions(program)
    value = names(program).follow(node)
    seen = [value, *names(program).values(dotted(value), value)]
    if any(isinstance(part, ast.BinOp) for one in seen for part in ast.walk(one)):
        return False
    return any(
        isinstance(part, ast.Call | ast.Subscript) and asked.number(part) is RankScope.JOB
        for one in seen
        for part in ast.walk(one)
    )


def on_cpu(program: Program, node: ast.expr) -> bool:
    """Whether an expression surely is a tensor in the CPU's memory."""
    value = names(program).follow(node)
    if not isinstance(value, ast.Call) or MOVED_BY_DEFAULT.search(program.text):
        return False
    if isinstance(value.func, ast.Attribute) and value.func.attr == "cpu":
        return not value.args
    name = program.name_of(value.func)
    if name.rpartition(".")[0] != "torch" or name.rpartition(".")[2] not in MAKERS:
        return False
    call = Call(value, name, "")
    device = call.keyword("device")
    return not call.starred and (device is None or _is_cpu(program, device))


def _is_cpu(program: Program, node: ast.expr) -> bool:
    """`"cpu"`, `torch.device("cpu")`, or a name for one of them."""
    value = names(program).follow(node)
    if isinstance(value, ast.Call) and program.name_of(value.func) == "torch.device":
        value = value.args[0] if value.args else value
    return constant(value) == "cpu"


def before(program: Program, first: ast.AST, then: ast.AST) -> bool:
    """Whether one surely runs before the other: the same function, no branch around the first
    that does not hold the other too."""
    home: Function | None = program.function_of(first)
    if home is not program.function_of(then) or first.lineno >= then.lineno:  # type: ignore[attr-defined]
        return False
    around = {*program.above(then)}
    return all(
        above in around
        for above in program.above(first)
        if isinstance(above, ast.If | ast.For | ast.While | ast.Try | ast.Lambda)
    )
