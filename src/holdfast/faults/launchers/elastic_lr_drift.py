"""The learning rate follows the number of ranks that happen to be present.

What you see   An interrupted run and an uninterrupted one give different results. After nodes left
               or returned the loss changes its slope, although no setting was changed.
Why            The script multiplies its learning rate by the world size, and the job is elastic:
               after every membership change the same line gives another rate. Whether that is right
               depends on what else changes. If each rank keeps its batch, the global batch follows
               the number of ranks, and a rate that follows it is one of two sound choices; the
               other is to keep both constant. What is not sound is a change that goes unnoticed, or
               that is applied on top of a rate restored from a checkpoint.
How to be sure Print learning rate and global batch size after every start, and compare.
Fix            Decide, and document it: keep the global batch constant (accumulate more steps with
               fewer ranks, and scale by the maximum: Horovod's `--max-np`), or let both follow the
               ranks on purpose, with a warm-up after each change.
Known limits   Lint recognizes products with the world size only where the name contains lr or
               learning_rate; rates computed in a framework or another file are not seen.
Sources        https://github.com/horovod/horovod/blob/master/docs/elastic.rst
               https://docs.pytorch.org/docs/stable/elastic/train_script.html
               https://arxiv.org/abs/1706.02677 (linear scaling of the learning rate, warm-up)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.analysis.source.checkpoints.restarts import RestartSign, resized
from holdfast.analysis.source.program import Program, dotted
from holdfast.analysis.source.python.name_values import names
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding

FAULT = Fault(
    code="HOLD910",
    slug="elastic-lr-drift",
    related=("world-size-mismatch", "config-changed", "endpoint-single-point"),
)

WORLD_SIZE_CALLS = re.compile(
    r"torch\.distributed\.(?:\w+\.)?get_world_size|horovod\.\w+(?:\.\w+)?\.size"
)
LEARNING_RATE = re.compile(r"(?i)(?:^|_)(?:lr|learning_?rate)(?:$|_)|^(?:lr|learningrate)")


@FAULT.lint_python
def learning_rate_follows_world_size(program: Program, source: Source) -> Iterator[Finding]:
    if _rescales(program):
        return
    elastic = resized(source)
    if elastic is None and source.started_by:
        return  # its launch script is known and starts a fixed number
    for node in program.parents:
        if not isinstance(node, ast.BinOp | ast.AugAssign):
            continue
        inner = isinstance(program.parents.get(node), ast.BinOp | ast.AugAssign)
        if (
            inner
            or not isinstance(node.op, ast.Mult | ast.Div)
            or not _is_learning_rate(program, node)
        ):
            continue
        if any(_is_world_size(program, part) for part in ast.walk(node)):
            yield (
                _warn_elastic(program, node, elastic)
                if elastic
                else _note_fixed_size(program, node)
            )


def _rescales(program: Program) -> bool:
    """It adapts on purpose when membership changes."""
    return any(call.method == "register_reset_callbacks" for call in program.calls)


def _is_learning_rate(program: Program, node: ast.BinOp | ast.AugAssign) -> bool:
    """It contains a learning rate, or is assigned to one: `lr=0.1 * world_size`."""
    above = program.parents.get(node)
    if isinstance(above, ast.keyword):
        return above.arg in ("lr", "learning_rate")
    targets = above.targets if isinstance(above, ast.Assign) else []
    words = [dotted(t).rpartition(".")[2] for t in targets]
    words += [dotted(p).rpartition(".")[2] for p in ast.walk(node) if isinstance(p, ast.expr)]
    return any(LEARNING_RATE.search(word) for word in words if word)


def _is_world_size(program: Program, node: ast.AST) -> bool:
    """The current number of ranks."""
    if isinstance(node, ast.Name | ast.Attribute):
        node = names(program).follow(node)
        if isinstance(node, ast.IfExp):
            return _is_world_size(program, node.body) or _is_world_size(program, node.orelse)
    while isinstance(node, ast.Call) and program.name_of(node.func) == "builtins.int" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Call):
        if WORLD_SIZE_CALLS.fullmatch(program.name_of(node.func)):
            return True
        said = ast.unparse(node)
        return "environ" in said and "'WORLD_SIZE'" in said
    return isinstance(node, ast.Subscript) and ast.unparse(node) == "os.environ['WORLD_SIZE']"


def _note_fixed_size(program: Program, node: ast.BinOp | ast.AugAssign) -> Finding:
    """Linear scaling is sound, so for a job of fixed size it is only a note."""
    return FAULT.note(
        f"`{ast.unparse(node)}` scales the learning rate by the number of ranks at start",
        reason="nothing here says that the number may change; if it does (an elastic job, a "
        "restart on fewer machines), the same line gives another rate",
        fix="log the rate and the global batch size at every start; before making the job elastic, "
        "decide whether both follow the ranks or stay constant",
        at=program.place(node),
    )


def _warn_elastic(
    program: Program, node: ast.BinOp | ast.AugAssign, elastic: RestartSign
) -> Finding:
    return FAULT.warning(
        f"`{ast.unparse(node)}` scales the learning rate by the number of ranks at start, which "
        "may change",
        reason=f"the job is elastic (`{elastic.said}`): after every membership change the same "
        "line gives another rate, which is right only if the global batch is meant to follow too",
        fix="decide: keep the global batch and the rate constant (scale by the maximum, "
        "accumulate more steps when there are fewer ranks), or let both follow on purpose, and "
        "log them at every start",
        evidence=[Evidence(quote=elastic.said, source=elastic.place.file, line=elastic.place.line)],
        at=program.place(node),
    )
