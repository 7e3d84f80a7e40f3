"""Where a script touches CUDA: calls after which a forked child can no longer use it.

Asking whether there are GPUs is no touch (torch.cuda.is_available, device_count), nor is seeding
(torch.manual_seed waits until CUDA is up): torch 2.13.0, torch/cuda/__init__.py (_lazy_call).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holdfast.analysis.source.program import Call, Program, constant
from holdfast.analysis.source.python.name_values import names

TOUCHES = frozenset(
    "torch.cuda." + name
    for name in [
        "current_device",
        "set_device",
        "init",
        "mem_get_info",
        "get_device_properties",
        "get_device_name",
        "get_device_capability",
        "synchronize",
        "current_stream",
        "Stream",
    ]
)
MOVES = ("to", "cuda")


def touch(program: Program, call: Call) -> str:
    """'always' for a call that needs CUDA, 'if there' where the device is chosen when it runs
    (`"cuda" if torch.cuda.is_available() else "cpu"`), '' for all others."""
    if call.name in TOUCHES:
        return "always"
    if isinstance(call.node.func, ast.Attribute) and call.method in ("", *MOVES):
        if call.node.func.attr == "cuda" and not _is_module(program, call):
            return "always"
        if call.node.func.attr == "to":
            said = [*call.node.args[:1], *_device(call)]
            return next((found for one in said if (found := named(program, one))), "")
    if call.name.startswith("torch.") and not call.name.startswith("torch.device"):
        return next((found for one in _device(call) if (found := named(program, one))), "")
    return ""


def _is_module(program: Program, call: Call) -> bool:
    """`torch.cuda(…)` is no method of a tensor."""
    return program.name_of(call.node.func).startswith("torch.")


def _device(call: Call) -> list[ast.expr]:
    return [k.value for k in call.node.keywords if k.arg == "device"]


def named(program: Program, node: ast.expr) -> str:
    """Whether an expression names a CUDA device: 'always', 'if there' or ''."""
    node = names(program).follow(node)
    if isinstance(node, ast.IfExp):
        either = {_said(program, node.body), _said(program, node.orelse)}
        return "if there" if "always" in either else ""
    return _said(program, node)


def _said(program: Program, node: ast.expr) -> str:
    if isinstance(node, ast.Call) and program.name_of(node.func) == "torch.device" and node.args:
        return named(program, node.args[0])
    if isinstance(node, ast.JoinedStr) and node.values:
        node = node.values[0]
    word = constant(node)
    return "always" if isinstance(word, str) and word.partition(":")[0] == "cuda" else ""


def touches(program: Program, *bodies: ast.AST) -> Iterator[tuple[Call, str]]:
    """Calls below these nodes that touch CUDA, in order of the text."""
    for call in program.calls_in(*bodies):
        if how := touch(program, call):
            yield call, how
