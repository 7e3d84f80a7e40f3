"""Numbers and lengths of time, as far as the text of a script tells them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from holdfast.analysis.source.program import Function, Program, constant, dotted
from holdfast.analysis.source.python.name_values import names

PARTS = ("days", "seconds", "microseconds", "milliseconds", "minutes", "hours", "weeks")
"""the arguments of timedelta, in their order"""
SECONDS = (86400, 1, 1e-6, 1e-3, 60, 3600, 604800)
GIVES = {"builtins.int": "int", "builtins.len": "int", "builtins.float": "float"}
DEPTH = 5
"""names are followed through this many others"""
SUMS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}


def number_kind(program: Program, node: ast.expr, depth: int = 0) -> str:
    """'int', 'float' or 'str' where the text shows that it is one; '' where it may be another."""
    kind = ""
    if depth > DEPTH:
        return ""
    if isinstance(node, ast.Constant):
        kind = type(node.value).__name__ if type(node.value) in (int, float, str) else ""
    elif isinstance(node, ast.UnaryOp):
        kind = number_kind(program, node.operand, depth)
    elif isinstance(node, ast.BinOp | ast.IfExp):
        kind = _of_two(program, node, depth + 1)
    elif isinstance(node, ast.Subscript):
        kind = "str" if program.name_of(node.value) == "os.environ" else ""
    elif isinstance(node, ast.Call):
        kind = _given_by(program, node)
    elif isinstance(node, ast.Name | ast.Attribute):
        kind = _named(program, node, depth)
    return kind


def _of_two(program: Program, node: ast.BinOp | ast.IfExp, depth: int) -> str:
    sides = (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node.left, node.right)
    both = {number_kind(program, side, depth) for side in sides}
    if isinstance(node, ast.IfExp):
        return both.pop() if len(both) == 1 else ""
    if both & {"", "str"} or type(node.op) not in SUMS:
        return ""
    return "float" if "float" in both or isinstance(node.op, ast.Div) else "int"


def _given_by(program: Program, node: ast.Call) -> str:
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    return "float" if method == "total_seconds" else GIVES.get(program.name_of(node.func), "")


def _named(program: Program, node: ast.Name | ast.Attribute, depth: int) -> str:
    values = names(program).values(dotted(node), node) if dotted(node) else []
    if values:
        kinds = {number_kind(program, value, depth + 1) for value in values}
        return kinds.pop() if len(kinds) == 1 else ""
    if isinstance(node, ast.Name):
        return _parameter(program, node)
    return _argument(program, node)


def _parameter(program: Program, node: ast.Name) -> str:
    """By its annotation or its default, where the function gives it no other value."""
    function = program.function_of(node)
    while function is not None and node.id not in (given := parameters(function)):
        function = program.function_of(function)
    if function is None or _rebound(function, node.id):
        return ""
    parameter, default = given[node.id]
    if default is not None and constant(default) is not None:
        return number_kind(program, default)
    noted = dotted(parameter.annotation) if parameter.annotation else ""
    return noted if noted in ("int", "float", "str") and default is None else ""


def parameters(function: Function) -> dict[str, tuple[ast.arg, ast.expr | None]]:
    """Every parameter with its default."""
    plain = [*function.args.posonlyargs, *function.args.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(function.args.defaults))
    pairs = zip(plain, [*defaults, *function.args.defaults], strict=True)
    named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return {one.arg: (one, default) for one, default in (*pairs, *named)}


def _rebound(function: Function, name: str) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
        for node in ast.walk(function)
    )


def _argument(program: Program, node: ast.Attribute) -> str:
    """`args.timeout` of a script that says add_argument("--timeout", type=int)."""
    if not isinstance(node.value, ast.Name) or node.value.id in ("self", "cls"):
        return ""
    if node.value.id in program.imports or any(
        dotted(target) == dotted(node)
        for assign in program.assigns
        for target in (assign.targets if isinstance(assign, ast.Assign) else [assign.target])
    ):
        return ""
    for call in program.calls:
        if call.node.args and call.method == "add_argument":
            options = [constant(option) for option in call.node.args]
            plain = [str(o).lstrip("-").replace("-", "_") for o in options if o is not None]
            if node.attr in plain:
                return GIVES.get(program.name_of(call.keyword("type") or call.node), "")
    return ""


# --- values ---------------------------------------------------------------------------------------


def number(program: Program, node: ast.expr, depth: int = 0) -> float | None:
    """The value of a literal, of sums of literals, of a name that only stands for such."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, int | float) else None
    if isinstance(node, ast.BinOp) and type(node.op) in SUMS:
        left, right = number(program, node.left, depth), number(program, node.right, depth)
        if left is None or right is None or (right == 0 and isinstance(node.op, ast.Div)):
            return None
        return SUMS[type(node.op)](left, right) if right or left else 0.0
    follow = names(program).follow(node) if depth < DEPTH else node
    return number(program, follow, depth + 1) if follow is not node else None


def seconds(program: Program, node: ast.expr, depth: int = 0) -> float | None:
    """How long a `timedelta(…)` is; None when that is not written out."""
    if isinstance(node, ast.Call):
        return _of_call(program, node) if is_timedelta(program, node) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for length, times in ((node.left, node.right), (node.right, node.left)):
            one, many = seconds(program, length, depth), number(program, times)
            if one is not None and many is not None:
                return one * many
        return None
    follow = names(program).follow(node) if depth < DEPTH else node
    return seconds(program, follow, depth + 1) if follow is not node else None


def is_timedelta(program: Program, node: ast.Call) -> bool:
    """Also where the import was forgotten."""
    written, name = dotted(node.func), program.name_of(node.func)
    return name == "datetime.timedelta" or (
        not name and written in ("timedelta", "datetime.timedelta", "dt.timedelta")
    )


def _of_call(program: Program, node: ast.Call) -> float | None:
    parts = [*zip(PARTS, node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
    total = 0.0
    for name, value in parts:
        amount = number(program, value)
        if amount is None or name not in PARTS:
            return None
        total += amount * SECONDS[PARTS.index(name)]
    return total
