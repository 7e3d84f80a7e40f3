"""What a Python script puts into its environment, or into that of a process it starts."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.analysis.source.program import Call, Program, constant, dotted
from holdfast.analysis.source.source import SourceSetting

BY = "os.environ"
ENVIRON = "os.environ"
SETS_ONE = ("os.environ.setdefault", "os.putenv", "os.environ.__setitem__")
REMOVES_ONE = ("os.environ.pop", "os.unsetenv", "os.environ.__delitem__")
_DELETED = re.compile(r"\bdel\b[^#\n]*\benviron\b")
ASKS = ("os.getenv", "os.environ.get", "os.environ.__getitem__")


def settings(program: Program) -> tuple[SourceSetting, ...]:
    """In order of the text; names that are only known at run time are left out."""
    if not any(word in program.text for word in ("environ", "putenv", "env=", "env =")):
        return ()
    copies = _copies(program)
    found = [*_from_assignments(program, copies), *_from_calls(program, copies)]
    found += _deleted(program)
    found += [s for mapping in _mappings(program) for s in _from_dict(program, mapping)]
    return tuple(sorted(set(found), key=lambda setting: setting.place))


def reads(program: Program) -> frozenset[str]:
    """Variables that the script itself asks for: they have a reader, whatever their name."""
    if "environ" not in program.text and "getenv" not in program.text:
        return frozenset()
    asked = [call.node.args[0] for call in program.called(*ASKS) if call.node.args]
    for node in program.parents:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            asked += [node.slice] if _is_environ(program, node.value) else []
        elif isinstance(node, ast.Compare) and _is_environ(program, node.comparators[0]):
            asked.append(node.left)
    return frozenset(name for key in asked if isinstance(name := constant(key), str))


def _is_environ(program: Program, node: ast.AST) -> bool:
    return program.name_of(node) == ENVIRON


def _copies(program: Program) -> frozenset[str]:
    """Names that hold a copy of the environment: `env = os.environ.copy()`, `dict(os.environ)`."""
    return frozenset(
        name
        for node in program.assigns
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        if _is_copy(program, node.value)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if (name := dotted(target))
    )


def _is_copy(program: Program, value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        called = program.name_of(value.func)
        if called == f"{ENVIRON}.copy":
            return True
        copied = called in ("builtins.dict", "copy.copy", "copy.deepcopy") and value.args
        return bool(copied) and _is_environ(program, value.args[0])
    return isinstance(value, ast.Dict) and _spreads_environ(program, value)


def _spreads_environ(program: Program, value: ast.Dict) -> bool:
    return any(
        key is None and _is_environ(program, inner)
        for key, inner in zip(value.keys, value.values, strict=True)
    )


def _from_assignments(program: Program, copies: frozenset[str]) -> Iterator[SourceSetting]:
    for node in program.assigns:
        if node.value is None:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            held = target.value if isinstance(target, ast.Subscript) else target
            if not (_is_environ(program, held) or dotted(held) in copies):
                continue
            if isinstance(target, ast.Subscript) and not isinstance(node, ast.AugAssign):
                yield from _one(program, target.slice, node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.value, ast.Dict):
                yield from _from_dict(program, node.value)


def _from_calls(program: Program, copies: frozenset[str]) -> Iterator[SourceSetting]:
    for call in program.calls:
        arguments = call.node.args
        if call.name in SETS_ONE and len(arguments) == 2:
            yield from _one(program, arguments[0], arguments[1])
        elif call.name in REMOVES_ONE and arguments:
            yield from _one(program, arguments[0], None)
        elif call.name == f"{ENVIRON}.update" or _updates_a_copy(call, copies):
            for argument in arguments:
                if isinstance(argument, ast.Dict):
                    yield from _from_dict(program, argument)
            yield from _from_keywords(program, call.node)
        elif call.name == "builtins.dict" and arguments and _is_environ(program, arguments[0]):
            yield from _from_keywords(program, call.node)


def _updates_a_copy(call: Call, copies: frozenset[str]) -> bool:
    return call.written.endswith(".update") and call.written.removesuffix(".update") in copies


def _from_keywords(program: Program, call: ast.Call) -> Iterator[SourceSetting]:
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield _setting(program, keyword.arg, keyword, keyword.value)


def _mappings(program: Program) -> Iterator[ast.Dict]:
    """`{**os.environ, "A": "1"}` anywhere, and `env={"A": "1"}` of whatever starts a process."""
    for call in program.calls:
        given = call.keyword("env")
        if isinstance(given, ast.Dict):
            yield given
    for node in program.assigns:
        if isinstance(node.value, ast.Dict) and _spreads_environ(program, node.value):
            yield node.value


def _from_dict(program: Program, mapping: ast.Dict) -> Iterator[SourceSetting]:
    for key, value in zip(mapping.keys, mapping.values, strict=True):
        if key is not None:
            yield from _one(program, key, value)


def _deleted(program: Program) -> Iterator[SourceSetting]:
    deletes = "del " in program.text and _DELETED.search(program.text)
    for node in program.parents if deletes else ():
        for target in node.targets if isinstance(node, ast.Delete) else ():
            if isinstance(target, ast.Subscript) and _is_environ(program, target.value):
                yield from _one(program, target.slice, None)


def _one(program: Program, key: ast.expr, value: ast.expr | None) -> Iterator[SourceSetting]:
    name = constant(key)
    if isinstance(name, str):
        yield _setting(program, name, key, value)


def _setting(program: Program, name: str, at: ast.AST, value: ast.expr | None) -> SourceSetting:
    """`value` is None where the variable is taken away."""
    if value is None:
        return SourceSetting(name=name, value="", place=program.place(at), by="unset")
    held = _literal(value)
    return SourceSetting(
        name=name,
        value=ast.unparse(value) if held is None else held,
        place=program.place(at),
        known=held is not None,
        written=ast.unparse(value),
        by=BY,
    )


def _literal(value: ast.expr) -> str | None:
    """The text of a literal, also of `str(1)`; None where it is only known at run time."""
    if isinstance(value, ast.Call) and dotted(value.func) == "str" and len(value.args) == 1:
        value = value.args[0]
    if isinstance(value, ast.Constant) and isinstance(value.value, str | int | float):
        return str(value.value)
    return None
