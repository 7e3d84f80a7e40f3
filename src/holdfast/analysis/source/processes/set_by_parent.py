"""Variables of a module that the parent sets before it starts children, which read them.

    ARGS = None
    def main():
        global ARGS
        ARGS = parse()              of this the children see nothing, unless they are forked:
        mp.spawn(work, nprocs=2)    they import the module again, and do not run main()

The same goes for `settings["lr"] = 0.1`, `config.lr = 0.1` and what the main guard sets.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.processes.children import Processes, ProcessStart
from holdfast.analysis.source.program import Function, Program
from holdfast.analysis.source.python.flow import may_reach, reached, under_main_guard


class StaleVariable(NamedTuple):
    """A child reads what only its parent has set."""

    start: ProcessStart
    name: str
    """the variable: 'ARGS', 'settings'"""
    written: str
    """what is set and read: 'ARGS', "settings['lr']", 'config.lr'"""
    assign: ast.Assign
    read: ast.AST
    missing: bool
    """the module itself makes no such variable"""


def stale_variables(children: Processes) -> Iterator[StaleVariable]:
    """Of children that may start with a fresh interpreter; one for each variable and start."""
    for start in children.starts:
        if start.method in ("fork", "unknown") or start.kind == "initializer":
            continue
        told: set[str] = set()
        for assign in _before(children, start):
            for found in _read(children, start, assign):
                if found.name not in told:
                    told.add(found.name)
                    yield found


def _before(children: Processes, start: ProcessStart) -> Iterator[ast.Assign]:
    """Assignments on the way to the start that a child does not run when it imports the file."""
    program = children.program
    home = program.function_of(start.call.node)
    if home is not None and home in children.bodies:
        return
    for assign in program.assigns:
        if not isinstance(assign, ast.Assign) or program.function_of(assign) is not home:
            continue
        skipped = home is not None or under_main_guard(program, assign)
        if skipped and may_reach(program, assign, start.born):
            yield assign


def _read(children: Processes, start: ProcessStart, assign: ast.Assign) -> Iterator[StaleVariable]:
    program = children.program
    bodies = reached(program, start.function)
    own = {name for body in bodies for name in _own(body)}
    for target in assign.targets:
        root = _root(target)
        if not root or root in own or not _of_the_module(children, root, target):
            continue
        made = [
            one for one in children.names.values(root, program.tree) if _on_import(program, one)
        ]
        if isinstance(target, ast.Name):
            if any(ast.dump(one) == ast.dump(assign.value) for one in made):
                continue  # the module itself comes to the same
        elif not made or _handed_on(program, bodies, root):
            continue
        written = ast.unparse(target)
        if read := next(_reads(bodies, written), None):
            yield StaleVariable(start, root, written, assign, read, missing=not made)


def _own(function: Function) -> Iterator[str]:
    """What a function takes or sets itself."""
    for node in ast.walk(function):
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _root(target: ast.expr) -> str:
    """'settings' of `settings["lr"]`, 'config' of `config.lr`."""
    if isinstance(target, ast.Subscript | ast.Attribute):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _of_the_module(children: Processes, name: str, target: ast.expr) -> bool:
    """A variable of the module, not one of the function around it."""
    if isinstance(target, ast.Name):
        return children.names.scope(name, target) is None
    return children.names.home(name, target) is None


def _on_import(program: Program, value: ast.expr) -> bool:
    return program.function_of(value) is None and not under_main_guard(program, value)


def _handed_on(program: Program, bodies: list[Function], name: str) -> bool:
    """A child gives the whole object to something, which may fill it in there."""
    return any(
        isinstance(given, ast.Name) and given.id == name
        for call in program.calls_in(*bodies)
        for given in (*call.node.args, *(k.value for k in call.node.keywords))
    )


def _reads(bodies: list[Function], written: str) -> Iterator[ast.AST]:
    for body in bodies:
        for node in ast.walk(body):
            if (
                isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
                and isinstance(node.ctx, ast.Load)
                and ast.unparse(node) == written
            ):
                yield node
