"""Pairs of lines that touch CUDA: in a process, and in a child that is forked from it later."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.processes.children import LOADERS, Processes, ProcessStart
from holdfast.analysis.source.processes.cuda_calls import touches
from holdfast.analysis.source.program import Call, Function, Program, constant, dotted
from holdfast.analysis.source.python.flow import may_reach, reached, under_main_guard
from holdfast.analysis.source.python.name_values import names


class ForkedCudaUse(NamedTuple):
    child: Call
    """touches CUDA in the child"""
    parent: Call | None
    """touches it before, in the parent; None when this file does not show it"""
    starter: Call
    """what makes the child"""
    where: str
    """'work()', 'Images.__getitem__()'"""
    method: str


def pairs(children: Processes) -> Iterator[ForkedCudaUse]:
    for start in children.starts:
        inside = next(touches(children.program, *reached(children.program, start.function)), None)
        before = _before(children, start) if inside else None
        if inside and before:
            where = f"{start.function.name}()"
            yield ForkedCudaUse(inside[0], before, start.call, where, start.method)


def _before(children: Processes, start: ProcessStart) -> Call | None:
    """The first touch that has happened when the children start."""
    program, node = children.program, start.born
    scope = program.function_of(node)
    for call, _ in touches(program, program.tree):
        function = program.function_of(call.node)
        if function in children.bodies:
            continue
        if function is None and scope is not None and not under_main_guard(program, call.node):
            return call
        if function is scope and may_reach(program, call.node, node):
            return call
        if scope is not None and _made_by(program, function, scope):
            return call
    return _through_a_call(children, start)


def _made_by(program: Program, function: Function | None, scope: Function) -> bool:
    """The constructor of the object whose method starts the children."""
    owner = program.parents.get(scope)
    if function is None or not isinstance(owner, ast.ClassDef):
        return False
    return scope.name != "__init__" == function.name and function in owner.body


def _through_a_call(children: Processes, start: ProcessStart) -> Call | None:
    program, node = children.program, start.born
    scope = program.function_of(node)
    for call in program.calls:
        target = program.target(call)
        if target is None or program.function_of(call.node) is not scope:
            continue
        if target in children.bodies or not may_reach(program, call.node, node):
            continue
        inside = next(touches(program, target), None)
        if inside is not None:
            return inside[0]
    return None


# --- workers of a DataLoader --------------------------------------------------------------------


def loader_pairs(children: Processes) -> Iterator[ForkedCudaUse]:
    program = children.program
    for call in program.called(*LOADERS):
        workers = call.argument(5, "num_workers")
        count = constant(names(program).follow(workers)) if workers is not None else 0
        if not isinstance(count, int) or count < 1:
            continue
        bodies = list(_worker_bodies(program, call))
        inside = next(((c, b) for b in bodies for c, _ in touches(program, b)), None)
        inside = inside or next(_stored(program, bodies), None)
        if inside is not None:
            apart = [
                c for c, _ in touches(program, program.tree) if not _within(program, c, bodies)
            ]
            where = _named(program, inside[1])
            yield ForkedCudaUse(
                inside[0], next(iter(apart), None), call, where, _method(children, call)
            )


def _method(children: Processes, loader: Call) -> str:
    given = loader.keyword("multiprocessing_context")
    if given is None:
        return children.method
    word = constant(given)
    return word if isinstance(word, str) else children.context(given) or "unknown"


def _worker_bodies(program: Program, loader: Call) -> Iterator[Function]:
    """What runs in the workers: the dataset's access, and the function that makes batches."""
    data = loader.argument(0, "dataset")
    made = names(program).follow(data) if data is not None else None
    if isinstance(made, ast.Call):
        for one in program.classes:
            if one.name == dotted(made.func):
                yield from _accessors(one)
    collate = program.function(dotted(loader.keyword("collate_fn") or ast.Constant(value=0)))
    if collate is not None:
        yield collate


def _accessors(dataset: ast.ClassDef) -> Iterator[Function]:
    for node in dataset.body:
        if isinstance(node, Function) and node.name in ("__getitem__", "__getitems__", "__iter__"):
            yield node


def _stored(program: Program, bodies: list[Function]) -> Iterator[tuple[Call, Function]]:
    """`self.x = ….cuda()` in the constructor of a dataset that reads `self.x` in a worker."""
    for body in bodies:
        owner = program.parents.get(body)
        if not isinstance(owner, ast.ClassDef):
            continue
        read = {dotted(n) for n in ast.walk(body) if isinstance(n, ast.Attribute)}
        for call, _ in touches(program, owner):
            above = program.parents.get(call.node)
            kept = {dotted(t) for t in above.targets} if isinstance(above, ast.Assign) else set()
            if kept & read:
                yield call, body


def _within(program: Program, call: Call, bodies: list[Function]) -> bool:
    return any(program.inside(call, body) for body in bodies)


def _named(program: Program, body: Function) -> str:
    owner = program.parents.get(body)
    return f"{owner.name}.{body.name}()" if isinstance(owner, ast.ClassDef) else f"{body.name}()"
