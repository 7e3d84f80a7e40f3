"""Whether every rank of a job comes to a line: no condition on the way that may hold some back."""

from __future__ import annotations

import ast
import re

from holdfast.analysis.source.program import Function, Program
from holdfast.analysis.source.python.flow import callers

OF_TIME = re.compile(r"(?i)step|epoch|iter|interval|every|freq|batch|save|last|best|loss|acc|val")
"""names of conditions that are the same on every rank: when, not who"""

DEEP = 3


def reached_by_all_ranks(program: Program, node: ast.AST, deep: int = DEEP) -> bool:
    """Only when nothing on the way looks as if it chose ranks; unknown conditions count as such."""
    function = program.function_of(node)
    for above in program.above(node):
        if isinstance(above, ast.If | ast.IfExp | ast.While) and not _about_time(above.test):
            return False
        if above is function:
            break
    if function is None:
        return True
    if function.decorator_list or _returns_early(function, node):
        return False
    sites = callers(program, function)
    if not deep or not sites:
        return _is_entry(program, function)
    return all(reached_by_all_ranks(program, call.node, deep - 1) for call in sites)


def _is_entry(program: Program, function: Function) -> bool:
    """Handed to mp.spawn or a Process, or named like the start of a script."""
    handed = any(
        isinstance(node, ast.Name) and node.id == function.name and isinstance(node.ctx, ast.Load)
        for node in program.parents
    )
    return handed or function.name in ("main", "train", "run", "worker", "main_worker")


def _about_time(test: ast.expr) -> bool:
    if "__name__" in ast.dump(test):
        return True
    words = [n.id for n in ast.walk(test) if isinstance(n, ast.Name)]
    words += [n.attr for n in ast.walk(test) if isinstance(n, ast.Attribute)]
    plain = not any(isinstance(n, ast.Call) for n in ast.walk(test))
    told = [word for word in words if word not in ("args", "self", "cfg", "config")]
    return plain and all(OF_TIME.search(word) and "rank" not in word.lower() for word in told)


def _returns_early(function: Function, node: ast.AST) -> bool:
    """`if rank != 0: return` before it."""
    line = getattr(node, "lineno", 0)
    return any(
        isinstance(one, ast.Return | ast.Raise | ast.Continue) and one.lineno < line
        for one in ast.walk(function)
    )
