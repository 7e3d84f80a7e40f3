"""Loops over epochs, and the loops over batches inside them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.program import Program, constant, dotted
from holdfast.analysis.source.python.flow import reached
from holdfast.analysis.source.python.name_values import names

LOADERS = re.compile(r"(?i)load|(?:^|_)dl(?:$|_)|train_data|trainset|dataset|batches|sampler")
EPOCHS = re.compile(r"(?i)epoch")


class EpochLoop(NamedTuple):
    outer: ast.For | ast.While
    batches: tuple[ast.For, ...]
    """loops over a loader inside it, also in functions that it calls"""


def epoch_loops(program: Program) -> list[EpochLoop]:
    """Loops that go over the same data again and again."""
    found = []
    for loop in program.loops:
        if isinstance(loop, ast.AsyncFor) or not _over_epochs(program, loop):
            continue
        inner = tuple(_inner(program, loop))
        if inner:
            found.append(EpochLoop(loop, inner))
    return found


def _over_epochs(program: Program, loop: ast.For | ast.While) -> bool:
    if isinstance(loop, ast.While):
        return True  # whatever it waits for, it starts the loader again each time
    over = loop.iter
    counted = isinstance(over, ast.Call) and program.name_of(over.func) == "builtins.range"
    if isinstance(over, ast.Call) and counted:
        ends = [constant(names(program).follow(one)) for one in over.args]
        if ends in ([1], [0, 1]):
            return False
    return counted or bool(EPOCHS.search(ast.unparse(loop.target)))


def _inner(program: Program, loop: ast.For | ast.While) -> Iterator[ast.For]:
    """Of the loop itself, and of the functions it calls: `train(…, train_loader, …)`."""
    bodies: list[ast.AST] = [loop]
    for call in program.calls_in(loop):
        target = program.target(call)
        bodies += reached(program, target, 1) if target is not None else []
    for body in bodies:
        for node in ast.walk(body):
            if (
                isinstance(node, ast.For)
                and node is not loop
                and _over_a_loader(program, node.iter)
            ):
                yield node


def _over_a_loader(program: Program, node: ast.expr) -> bool:
    """`loader`, `enumerate(tqdm(loader))`, `self.train_loader`."""
    while isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    made = names(program).follow(node)
    if isinstance(made, ast.Call) and dotted(made.func).endswith("DataLoader"):
        return True
    return bool(LOADERS.search(dotted(node)))
