"""Where a function changes an object that it did not make: `t[0] += 1`, `t.add_(x)`, `l.append(x)`.

Followed into the functions of the same file that it hands the object to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.program import Call, Function, Program, dotted

IN_PLACE = re.compile(r"[a-z]\w*[a-z0-9]_")
"""torch's way to say that a method changes its tensor"""

NO_CHANGE = ("share_memory_", "requires_grad_", "detach_", "pin_memory_", "retain_grad_")
OF_LISTS = (
    "load_state_dict",
    "append",
    "extend",
    "insert",
    "remove",
    "update",
    "setdefault",
    "add",
    "appendleft",
)
DEEP = 2


class Write(NamedTuple):
    name: str
    """of what is changed, dotted, as the function that was asked about calls it"""
    how: str
    """'+=' of a part, 'whole +=' of all of it, '=' of a part, 'in place' (a method of tensors),
    'method' (of lists and dicts), 'training' (an optimizer is made for its parameters),
    'value' (`x.value += 1`)"""
    node: ast.AST
    part: ast.expr | None = None
    """which: 0 of `t[0]`"""
    guards: tuple[str, ...] = ()
    """dotted names of what is held around it: `with lock:`, `lock.acquire()`"""

    @property
    def reads_first(self) -> bool:
        """It takes the old value, changes it and puts it back: two at once lose one of the two."""
        if self.how in ("+=", "whole +=", "value"):
            return True
        if self.how == "=" and isinstance(self.node, ast.Assign):
            old = ast.dump(self.node.targets[0]).replace("Store()", "Load()")
            return any(ast.dump(part) == old for part in ast.walk(self.node.value))
        method = self.node.func if isinstance(self.node, ast.Call) else None
        named = method.attr if isinstance(method, ast.Attribute) else ""
        return self.how == "in place" and named in ("add_", "sub_", "mul_", "div_", "index_add_")


def writes(program: Program, function: Function | ast.Module, deep: int = DEEP) -> list[Write]:
    """Everything that the function (or the module) changes, by the names it knows it under."""
    found = [_guarded(program, function, one) for one in _own(program, function)]
    if deep:
        for call in program.calls_in(function):
            callee = program.target(call)
            if callee is not None and callee is not function:
                found += _passed_on(program, function, call, callee, deep)
    return found


def _own(program: Program, function: ast.AST) -> Iterator[Write]:
    for node in ast.walk(function):
        if isinstance(node, ast.AugAssign):
            yield from _augmented(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript) and (name := _root(target.value)):
                    yield Write(name, "=", node, target.slice)
        elif isinstance(node, ast.Call):
            yield from _called(program, node)


def _augmented(node: ast.AugAssign) -> Iterator[Write]:
    target = node.target
    if isinstance(target, ast.Subscript):
        if name := _root(target.value):
            yield Write(name, "+=", node, target.slice)
    elif isinstance(target, ast.Attribute) and target.attr == "value":
        yield Write(dotted(target.value), "value", node)
    elif name := _root(target):
        yield Write(name, "whole +=", node)


def _called(program: Program, node: ast.Call) -> Iterator[Write]:
    if isinstance(node.func, ast.Attribute):
        method, base = node.func.attr, node.func.value
        index = base.slice if isinstance(base, ast.Subscript) else None
        name = _root(base.value if isinstance(base, ast.Subscript) else base)
        if name and IN_PLACE.fullmatch(method) and method not in NO_CHANGE:
            yield Write(name, "in place", node, index)
        elif name and method in OF_LISTS:
            yield Write(name, "method", node, index)
    if program.name_of(node.func).startswith("torch.optim.") and node.args:
        first = node.args[0]
        if isinstance(first, ast.Call) and dotted(first.func).endswith(".parameters"):
            yield Write(dotted(first.func)[: -len(".parameters")], "training", node)


def _root(node: ast.expr) -> str:
    """The object of `x`, `x.data` and `self.x`: '' of anything computed."""
    name = dotted(node)
    return name.removesuffix(".data")


def _passed_on(
    program: Program, function: ast.AST, call: Call, callee: Function, deep: int
) -> Iterator[Write]:
    taken = [a.arg for a in (*callee.args.posonlyargs, *callee.args.args)]
    taken = taken[1:] if taken[:1] in (["self"], ["cls"]) else taken
    handed = dict(zip(taken, call.node.args, strict=False))
    handed.update({k.arg: k.value for k in call.node.keywords if k.arg})
    here = _held(program, function, call.node)
    for one in writes(program, callee, deep - 1):
        name = one.name
        if name in handed:
            name = dotted(handed[name])
        elif name in taken or (not name.startswith("self.") and _local(callee, name)):
            continue
        if name:
            yield one._replace(name=name, guards=(*one.guards, *here))


def _local(function: Function, name: str) -> bool:
    """Bound in the function itself, and not declared global there."""
    said = {n for node in ast.walk(function) if isinstance(node, ast.Global) for n in node.names}
    root = name.partition(".")[0]
    return root not in said and any(
        isinstance(node, ast.Name) and node.id == root and isinstance(node.ctx, ast.Store)
        for node in ast.walk(function)
    )


def _guarded(program: Program, function: ast.AST, one: Write) -> Write:
    return one._replace(guards=_held(program, function, one.node))


def _held(program: Program, function: ast.AST, node: ast.AST) -> tuple[str, ...]:
    """What `with` blocks hold around a node, and what was acquired before it in its function."""
    held: list[str] = []
    for above in program.above(node):
        if isinstance(above, ast.With | ast.AsyncWith):
            held += [_holder(item.context_expr) for item in above.items]
        if above is function:
            break
    line = getattr(node, "lineno", 0)
    held += [
        call.written.rpartition(".")[0]
        for call in program.calls_in(function)
        if call.method == "acquire" and call.node.lineno <= line
    ]
    return tuple(name for name in held if name)


def _holder(node: ast.expr) -> str:
    """'lock' of `with lock:`, 'counter' of `with counter.get_lock():`; '' of no_grad() and such."""
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        return name.rpartition(".")[0] if name.endswith((".get_lock", ".acquire")) else ""
    return dotted(node) or "?"
