"""Whether a path is the same at every save, as far as the text tells."""

from __future__ import annotations

import ast
import re

from holdfast.analysis.source.program import Call, Function, Program, dotted
from holdfast.analysis.source.python.flow import callers, loop_variables
from holdfast.analysis.source.python.name_values import names

VARIES = re.compile(
    r"(?i)step|epoch|iter|(?:^|_)(?:it|i|ep|e|n|idx|index|num|count|round|batch)(?:$|_)"
    r"|time|date|stamp|uuid|now|version|tag"
)
"""names that change from save to save"""

PASSES = re.compile(
    r"os\.path\.(?:join|abspath|expanduser|realpath|normpath)|os\.fspath|pathlib\.Path|builtins\.str"
)
DEEP = 3


def same_every_time(program: Program, node: ast.expr, deep: int = DEEP) -> bool | None:
    """True, False, or None when it cannot be told."""
    if isinstance(node, ast.Constant):
        return True
    if isinstance(node, ast.Name | ast.Attribute):
        return _named(program, node, deep)
    parts = _parts(program, node)
    if parts is None:
        return None
    found = {same_every_time(program, part, deep) for part in parts}
    if False in found:
        return False
    return None if None in found else True


def _parts(program: Program, node: ast.expr) -> list[ast.expr] | None:
    """What it is put together from; None of what is not understood."""
    if isinstance(node, ast.JoinedStr | ast.Tuple | ast.FormattedValue | ast.BinOp | ast.Subscript):
        return [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    if isinstance(node, ast.Call):
        if PASSES.fullmatch(program.name_of(node.func)):
            return node.args
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("format", "joinpath"):
            return [node.func.value, *node.args, *(k.value for k in node.keywords)]
    return None


def _named(program: Program, node: ast.Name | ast.Attribute, deep: int) -> bool | None:
    name = dotted(node)
    if not name:
        return None
    if VARIES.search(name.rpartition(".")[2]) or name in loop_variables(program, node):
        return False
    values = names(program).values(name, node)
    if name.startswith("self.") and len(values) == 1 and _from_outside(program, values[0]):
        return True  # handed to the constructor: the same for as long as the object lives
    if values:
        found = {same_every_time(program, value, deep - 1) for value in values if deep}
        return found.pop() if len(found) == 1 else None
    function = program.function_of(node)
    if isinstance(node, ast.Name) and function is not None and name in _taken(function):
        return _parameter(program, function, name, deep)
    # `args.save_path`, `self.config.folder`: settings are made once and do not change in a run.
    return True if isinstance(node, ast.Attribute) else None


def _from_outside(program: Program, value: ast.expr) -> bool:
    function = program.function_of(value)
    made = function is not None and function.name == "__init__"
    return made and isinstance(value, ast.Name) and not VARIES.search(value.id)


def _parameter(program: Program, function: Function, name: str, deep: int) -> bool | None:
    if function.name == "__init__":
        return True  # for as long as the object lives
    sites = callers(program, function)
    handed = [_handed(function, call, name) for call in sites] or [_default(function, name)]
    if not deep or None in handed:
        return None
    found = {same_every_time(program, one, deep - 1) for one in handed if one is not None}
    return found.pop() if len(found) == 1 else None


def _handed(function: Function, call: Call, name: str) -> ast.expr | None:
    taken = [one for one in _taken(function) if one not in ("self", "cls")]
    place = taken.index(name) if name in taken else len(call.node.args)
    return call.argument(place, name) or (None if call.starred else _default(function, name))


def _taken(function: Function) -> list[str]:
    given = function.args
    return [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def spelled(program: Program, node: ast.expr) -> str:
    """The path as code, with names and defaults of parameters filled in where they are known."""
    node = names(program).follow(node)
    function = program.function_of(node)
    if isinstance(node, ast.Name) and function is not None:
        node = _default(function, node.id) or node
    return ast.unparse(node)


def _default(function: Function, name: str) -> ast.expr | None:
    plain = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    pairs = dict(zip(reversed(plain), reversed(function.args.defaults), strict=False))
    only = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    pairs.update({one.arg: value for one, value in only if value is not None})
    return pairs.get(name)
