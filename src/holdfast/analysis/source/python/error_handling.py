"""What a script does about failures: which `try` encloses a call, and how its handlers end."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from holdfast.analysis.source.program import Program, Scope, dotted

FAILURES = frozenset(
    [
        "RuntimeError",
        "Exception",
        "BaseException",
        "DistError",
        "DistBackendError",
        "DistNetworkError",
        "DistStoreError",
    ]
)
"""what a failed collective can be caught as"""
EXITS = frozenset(
    [
        "sys.exit",
        "os._exit",
        "os.abort",
        "os.kill",
        "os.killpg",
        "builtins.exit",
        "builtins.quit",
        "pytest.fail",
        "pytest.skip",
    ]
)
ABOUT_MEMORY = re.compile(r"out of memory|oom", re.I)
"""in the words of a handler: an error that is raised at once, in Python, with the group whole"""
FALLS = "falls through"
LAST_ACTS = re.compile(
    r"clean|destroy|shut_?down|tear_?down|close|exit|finali[sz]e|stop|del_", re.I
)


def around(program: Program, node: ast.AST) -> Iterator[ast.Try]:
    """The `try` statements that guard it, innermost first, within its function."""
    below = node
    for above in program.above(node):
        if isinstance(above, Scope):
            return
        if isinstance(above, ast.Try) and below in above.body:
            yield above
        below = above


def caught(handler: ast.ExceptHandler) -> frozenset[str]:
    """The last parts of the names of what it catches: {'RuntimeError'}."""
    if handler.type is None:
        return frozenset(["BaseException"])
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return frozenset(dotted(kind).rpartition(".")[2] for kind in kinds)


def endings(program: Program, body: Iterable[ast.stmt]) -> frozenset[str]:
    """How control can leave these statements: 'raise', 'return', 'break', 'continue', 'exit'."""
    found: set[str] = set()
    for statement in body:
        here = _ending(program, statement)
        found |= here - {FALLS}
        if FALLS not in here:
            return frozenset(found)
    return frozenset(found | {FALLS})


def _ending(program: Program, statement: ast.stmt) -> frozenset[str]:
    plain = {ast.Raise: "raise", ast.Return: "return", ast.Break: "break", ast.Continue: "continue"}
    found = frozenset([FALLS])
    if type(statement) in plain:
        found = frozenset([plain[type(statement)]])
    elif isinstance(statement, ast.If):
        found = endings(program, statement.body) | endings(program, statement.orelse)
    elif isinstance(statement, ast.With | ast.AsyncWith):
        found = endings(program, statement.body)
    elif isinstance(statement, ast.For | ast.AsyncFor | ast.While):
        found = (endings(program, statement.body) - {"break", "continue"}) | {FALLS}
    elif isinstance(statement, ast.Try):
        last = endings(program, statement.finalbody)
        if FALLS not in last:
            return last
        found = endings(program, [*statement.body, *statement.orelse])
        found = found.union(*(endings(program, h.body) for h in statement.handlers))
    elif isinstance(statement, ast.Match):
        found = found.union(*(endings(program, case.body) for case in statement.cases))
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        found = frozenset(["exit"]) if program.name_of(statement.value.func) in EXITS else found
    return found


def is_last_act(program: Program, guard: ast.Try) -> bool:
    """It is in a `finally`, or in a function that cleans up: nothing comes after it."""
    function = program.function_of(guard)
    if function is not None and LAST_ACTS.search(function.name):
        return True
    below: ast.AST = guard
    for above in program.above(guard):
        if isinstance(above, ast.Try) and below in above.finalbody:
            return True
        if isinstance(above, Scope):
            return False
        below = above
    return False


def words(*nodes: ast.AST) -> Iterator[str]:
    """Every piece of text written in them: literals and the fixed parts of f-strings."""
    for node in nodes:
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value
