"""How a script uses holdfast's own library: which Checkpoint, and what is called of it.

Only what the file shows: a Checkpoint that is handed to another function may be used there, and is
left alone.
"""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from holdfast.analysis.source.checkpoints.training_state import bound_to, first_backward
from holdfast.analysis.source.program import Call, Program, dotted, once_per_program

CHECKPOINT = ("holdfast.Checkpoint", "holdfast.checkpoint.checkpoint.Checkpoint")
SAMPLER = ("holdfast.Sampler", "holdfast.checkpoint.sampler.Sampler")
GROUPS = (
    "torch.distributed.init_process_group",
    "torch.distributed.distributed_c10d.init_process_group",
    "holdfast.init",
)
LOADERS = ("torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader")
ACCUMULATES = re.compile(r"%|accum|micro_?batch|sync_grad")
"""a condition on how many batches there were; another may skip a step that counts anyway"""


class OwnCheckpoint(NamedTuple):
    """One `ckpt = holdfast.Checkpoint(…)` whose every use is in this file."""

    made: Call
    name: str
    calls: tuple[Call, ...]
    """`ckpt.step()`, `ckpt.resume()` …"""

    def method(self, name: str) -> list[Call]:
        return [call for call in self.calls if call.method == name]


@once_per_program
def own_checkpoints(program: Program) -> list[OwnCheckpoint]:
    found = []
    for made in program.called(*CHECKPOINT):
        named = bound_to(program, [made]) or _as_context(program, made)
        if len(named) == 1 and _stays(program, name := named.pop()):
            calls = tuple(one for one in program.calls if one.written.rpartition(".")[0] == name)
            found.append(OwnCheckpoint(made, name, calls))
    return found


def _as_context(program: Program, made: Call) -> set[str]:
    """`with holdfast.Checkpoint(…) as ckpt:`"""
    item = program.parents.get(made.node)
    named = item.optional_vars if isinstance(item, ast.withitem) else None
    return {dotted(named)} - {""} if named is not None else set()


def _stays(program: Program, name: str) -> bool:
    """It is only ever asked for its attributes; an attribute of another object goes anywhere."""
    uses = [
        node
        for node in program.parents
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
    ]
    parents = [program.parents.get(node) for node in uses]
    return "." not in name and all(
        isinstance(above, ast.Attribute | ast.withitem) for above in parents
    )


class StepBesideOptimizer(NamedTuple):
    """`ckpt.step()` after every micro-batch, while the optimizer steps after some of them."""

    call: Call
    optimizer: Call
    condition: str


def steps_within_a_batch(program: Program) -> list[StepBesideOptimizer]:
    found = []
    for one in own_checkpoints(program):
        for call in one.method("step"):
            loop = next((a for a in program.above(call.node) if isinstance(a, ast.For)), None)
            if loop is None:
                continue
            mine = _conditions(program, call.node, loop)
            steps = [c for c in program.calls_in(loop) if _steps_an_optimizer(c)]
            guards = [_conditions(program, c.node, loop) for c in steps]
            extra = [
                guard[0]
                for guard in guards
                if guard and not mine and ACCUMULATES.search(ast.unparse(guard[0]))
            ]
            if steps and len(extra) == len(steps):
                found.append(StepBesideOptimizer(call, steps[0], ast.unparse(extra[0])))
    return found


def _conditions(program: Program, node: ast.AST, loop: ast.For) -> list[ast.expr]:
    """Of the `if`s between a node and the loop; a `continue` before it counts as one."""
    found: list[ast.expr] = []
    for above in program.above(node):
        if above is loop:
            break
        if isinstance(above, ast.If):
            found.append(above.test)
    for statement in loop.body:
        earlier = statement.lineno < getattr(node, "lineno", 0)
        if (
            isinstance(statement, ast.If)
            and earlier
            and any(isinstance(inner, ast.Continue) for inner in statement.body)
        ):
            found.append(statement.test)
    return found


def _steps_an_optimizer(call: Call) -> bool:
    owner = call.written.rpartition(".")[0].rpartition(".")[2].lower()
    return call.method == "step" and ("optim" in owner or owner in ("opt", "scaler"))


def made_before_the_group(program: Program) -> list[tuple[Call, Call]]:
    """A Checkpoint and the call below it, in the same block, that makes the process group."""
    found = []
    for one in own_checkpoints(program):
        here = _statement(program, one.made.node)
        if any(_earlier(group.node, here) for group in program.called(*GROUPS)):
            continue  # it may have been made there
        for group in program.called(*GROUPS):
            there = _statement(program, group.node)
            together = program.parents.get(here) is program.parents.get(there)
            if together and _earlier(here, there):
                found.append((one.made, group))
    return found


def _earlier(one: ast.expr | ast.stmt, other: ast.expr | ast.stmt) -> bool:
    return (one.lineno, one.col_offset) < (other.lineno, other.col_offset)


def _statement(program: Program, node: ast.AST) -> ast.stmt:
    above = node
    while not isinstance(above, ast.stmt):
        above = program.parents[above]
    return above


class UnfollowedLoop(NamedTuple):
    """`for batch in loader:` over a loader of a holdfast.Sampler."""

    loop: ast.For
    sampler: str
    loader: str


def loops_without_follow(program: Program) -> list[UnfollowedLoop]:
    if "follow" in program.text.lower() or "StatefulLoader" in program.text:
        return []
    samplers = bound_to(program, program.called(*SAMPLER))
    loaders = {
        name: ast.unparse(given)
        for call in program.called(*LOADERS)
        if (given := call.keyword("batch_sampler")) is not None and dotted(given) in samplers
        for name in bound_to(program, [call])
    }
    return [
        UnfollowedLoop(loop, loaders[dotted(over)], dotted(over))
        for loop in program.loops
        if isinstance(loop, ast.For)
        and dotted(over := _iterated(loop.iter)) in loaders
        and any(
            isinstance(call.node.func, ast.Attribute) and call.node.func.attr == "backward"
            for call in program.calls_in(loop)
        )
    ]


def _iterated(node: ast.expr) -> ast.expr:
    """Without `enumerate(…)` or `tqdm(…)` around it."""
    while isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    return node


def never_called(program: Program, *methods: str) -> list[OwnCheckpoint]:
    """Checkpoints of a training none of whose `methods` is called."""
    if first_backward(program) is None:
        return []
    return [
        one
        for one in own_checkpoints(program)
        if not any(call.method in methods for call in one.calls)
    ]
