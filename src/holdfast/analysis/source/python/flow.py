"""What runs in what: loops, guards and calls within one script."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from holdfast.analysis.source.program import Call, Function, Program

NESTED = 3
"""calls deep that a face follows within a file"""


def method_of(call: Call) -> str:
    """'map' of `pool.map(…)`, and of `Pool(4).map(…)`, which has no dotted name."""
    function = call.node.func
    return function.attr if isinstance(function, ast.Attribute) else ""


def reached(program: Program, function: Function, deep: int = NESTED) -> list[Function]:
    """The function and those of this file that it calls, a few calls deep."""
    found = [function]
    edge = [function]
    for _ in range(deep):
        called = [program.target(call) for body in edge for call in program.calls_in(body)]
        edge = [one for one in dict.fromkeys(called) if one is not None and one not in found]
        found += edge
    return found


def parameters(function: Function) -> list[str]:
    plain = [*function.args.posonlyargs, *function.args.args]
    return [one.arg for one in plain if one.arg not in ("self", "cls")]


def in_loop(program: Program, node: ast.AST) -> bool:
    """It is inside a loop itself (not: its function is called in one)."""
    for above in program.above(node):
        if isinstance(above, Function | ast.Lambda):
            return False
        if isinstance(above, ast.For | ast.AsyncFor | ast.While | ast.ListComp | ast.GeneratorExp):
            return True
    return False


def callers(program: Program, function: Function) -> list[Call]:
    """Calls of this file that run a function of it."""
    named = (call for call in program.calls if call.method == function.name)
    return [call for call in named if program.target(call) is function]


def repeated(program: Program, node: ast.AST, deep: int = NESTED) -> bool:
    """It runs more than once: in a loop, or in a function that is called in one."""
    if in_loop(program, node):
        return True
    function = program.function_of(node)
    if function is None or not deep:
        return False
    return any(repeated(program, call.node, deep - 1) for call in callers(program, function))


def under_main_guard(program: Program, node: ast.AST) -> bool:
    return any(
        isinstance(above, ast.If) and "__name__" in ast.dump(above.test)
        for above in program.above(node)
    )


def unconditional(program: Program, node: ast.AST) -> bool:
    """No `if` encloses it but the main guard, or one that asks for the start method."""
    return all(
        "__name__" in (said := ast.dump(above.test)) or "start_method" in said
        for above in program.above(node)
        if isinstance(above, ast.If)
    )


def may_reach(program: Program, first: ast.AST, then: ast.AST) -> bool:
    """Of two nodes in one function: `first` comes before `then`, and its branch gets there."""
    if getattr(first, "lineno", 0) >= getattr(then, "lineno", 0):
        return False
    around = set(program.above(then))
    child = first
    for above in program.above(first):
        if above in around:
            return not (isinstance(above, ast.If) and _other_arm(program, above, child, then))
        if isinstance(above, ast.If) and _leaves(
            above.body if child in above.body else above.orelse
        ):
            return False
        child = above
    return True


def _other_arm(program: Program, fork: ast.If, child: ast.AST, then: ast.AST) -> bool:
    path = {then, *program.above(then)}
    arm = fork.body if child in fork.body else fork.orelse
    return child is not fork.test and not any(statement in path for statement in arm)


def _leaves(arm: list[ast.stmt]) -> bool:
    """The branch ends here: return, raise, continue, break, sys.exit()."""
    last = arm[-1] if arm else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return ast.unparse(last.value.func) in ("sys.exit", "exit", "os._exit")
    return isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break)


def loop_variables(program: Program, node: ast.AST) -> Iterator[str]:
    """The variables of the loops and comprehensions around it."""
    for above in program.above(node):
        if isinstance(above, Function):
            return
        loops: list[ast.expr] = []
        if isinstance(above, ast.For | ast.AsyncFor):
            loops = [above.target]
        elif isinstance(above, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
            loops = [part.target for part in above.generators]
        yield from (n.id for one in loops for n in ast.walk(one) if isinstance(n, ast.Name))
