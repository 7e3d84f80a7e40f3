"""The learning rate follows the number of ranks that happen to be there.

What you see   A run that was interrupted and one that was not give different results. After nodes
               left or came back the loss changes its slope, and no setting was changed.
Why            The script multiplies its learning rate by the world size, and the job is elastic:
               after every change of members the same line gives another rate. Whether that is right
               depends on what else changes. If each rank keeps its batch, the global batch follows
               the ranks, and a rate that follows it is one of two sound choices; the other is to
               keep both constant. What is not sound is to have it happen unnoticed, or on top of a
               rate that was restored from a checkpoint.
How to be sure Print learning rate and global batch after every start, and compare.
Fix            Decide, and write it down: hold the global batch constant (accumulate more steps with
               fewer ranks, and scale by the maximum: Horovod's `--max-np`), or let both follow the
               ranks on purpose, with a warm-up after each change.
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
from holdfast.analysis.source.python.names import names
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Evidence, Finding

FAULT = Fault(code="HOLD910", slug="elastic-lr-drift")

COUNTS = re.compile(r"torch\.distributed\.(?:\w+\.)?get_world_size|horovod\.\w+(?:\.\w+)?\.size")
RATE = re.compile(r"(?i)(?:^|_)(?:lr|learning_?rate)(?:$|_)|^(?:lr|learningrate)")


@FAULT.lint_python
def the_rate_follows_the_ranks(program: Program, source: Source) -> Iterator[Finding]:
    if _rescales(program):
        return
    elastic = resized(source)
    if elastic is None and source.started_by:
        return  # its recipe is known, and starts a fixed number
    for node in program.parents:
        if not isinstance(node, ast.BinOp | ast.AugAssign):
            continue
        inner = isinstance(program.parents.get(node), ast.BinOp | ast.AugAssign)
        if inner or not isinstance(node.op, ast.Mult | ast.Div) or not _about_a_rate(program, node):
            continue
        if any(_counts(program, part) for part in ast.walk(node)):
            yield _finding(program, node, elastic) if elastic else _remark(program, node)


def _rescales(program: Program) -> bool:
    """It adjusts things when members change, on purpose."""
    return any(call.method == "register_reset_callbacks" for call in program.calls)


def _about_a_rate(program: Program, node: ast.BinOp | ast.AugAssign) -> bool:
    """A learning rate is in it, or it is given to one: `lr=0.1 * world_size`."""
    above = program.parents.get(node)
    if isinstance(above, ast.keyword):
        return above.arg in ("lr", "learning_rate")
    targets = above.targets if isinstance(above, ast.Assign) else []
    words = [dotted(t).rpartition(".")[2] for t in targets]
    words += [dotted(p).rpartition(".")[2] for p in ast.walk(node) if isinstance(p, ast.expr)]
    return any(RATE.search(word) for word in words if word)


def _counts(program: Program, node: ast.AST) -> bool:
    """How many ranks there are now."""
    if isinstance(node, ast.Name | ast.Attribute):
        node = names(program).follow(node)
        if isinstance(node, ast.IfExp):
            return _counts(program, node.body) or _counts(program, node.orelse)
    while isinstance(node, ast.Call) and program.name_of(node.func) == "builtins.int" and node.args:
        node = node.args[0]
    if isinstance(node, ast.Call):
        if COUNTS.fullmatch(program.name_of(node.func)):
            return True
        said = ast.unparse(node)
        return "environ" in said and "'WORLD_SIZE'" in said
    return isinstance(node, ast.Subscript) and ast.unparse(node) == "os.environ['WORLD_SIZE']"


def _remark(program: Program, node: ast.BinOp | ast.AugAssign) -> Finding:
    """Linear scaling is sound, so of a job of fixed size it is only worth knowing."""
    return FAULT.note(
        f"`{ast.unparse(node)}` scales the learning rate by the ranks of this start",
        reason="nothing here says that their number may change; where it does (an elastic job, a "
        "restart on fewer machines), the same line gives another rate",
        fix="log the rate and the global batch at every start; before the job is made elastic, "
        "decide whether both shall follow the ranks or stay",
        at=program.place(node),
    )


def _finding(program: Program, node: ast.BinOp | ast.AugAssign, elastic: RestartSign) -> Finding:
    return FAULT.warning(
        f"`{ast.unparse(node)}` scales the learning rate by the ranks of this start, and their "
        "number may change",
        reason=f"the job is elastic (`{elastic.said}`): after every change of members the same "
        "line gives another rate, which is right only if the global batch is meant to follow too",
        fix="decide which: keep the global batch and the rate constant (scale by the maximum, "
        "accumulate more steps when there are fewer ranks), or let both follow on purpose, and "
        "log them at every start",
        evidence=[Evidence(quote=elastic.said, source=elastic.place.file, line=elastic.place.line)],
        at=program.place(node),
    )
