"""A failed collective is retried on the same group.

What you see   The retry fails at once (`Connection closed by peer`, `Socket closed`), hangs, or
               meets another rank's first attempt, and then the ranks work with different data.
Why            A failed collective leaves its group broken. Gloo has closed the connection that
               timed out; NCCL has aborted its communicator, and what was in flight may be half
               written. The other ranks do not know about the retry: they are in the first attempt,
               or already in the next collective.
How to be sure Let one rank sleep longer than a short timeout under Gloo and catch the error: the
               next collective fails within milliseconds.
Fix            Let the error end the process and restart all ranks from a checkpoint: `holdfast
               run`, or torchrun with `--max-restarts`. Or, on every rank: destroy_process_group(),
               init_process_group() with a fresh store, then continue. Retrying is right for what
               comes before the group: connecting, the store, init_process_group itself.
Known limits   Only retries in the script itself are seen: loops, handlers, and decorators of known
               libraries or with a name such as `retry`.
Sources        torch 2.13.0: torch/distributed/distributed_c10d.py (init_process_group, on timeout:
               'it is not safe to continue executing user code')
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html
               pytorch/gloo gloo/transport/tcp/pair.cc (signalException closes the pair)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.analysis.source.collectives.communication import Exchange, exchanges, reached
from holdfast.analysis.source.collectives.torch_calls import GROUP_MAKERS
from holdfast.analysis.source.program import Function, Program, Scope, dotted
from holdfast.analysis.source.python.error_handling import (
    ABOUT_MEMORY,
    FAILURES,
    FALLS,
    around,
    caught,
    endings,
    is_last_act,
    words,
)
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD615",
    slug="timeout-retry",
    related=("except-nccl", "timeout-text", "max-restarts-zero"),
)

LIBRARIES = ("tenacity.", "backoff.", "retrying.", "retry.", "stamina.")
RETRY = re.compile(r"(^|_)(retry|retries|retrying|retryable|backoff|attempts?|tries)(_|$)", re.I)
FORMS = re.compile(
    r"(^|_)(re_?)?init(ialise|ialize)?(_|$)|set_?up|recreat|rebuild|re_?form|recover|reconfigur"
    r"|restart|reconnect",
    re.I,
)
"""in the name of a function that may form a new group"""
RECOVERS = re.compile(
    r"abort|shut_?down|clean|destroy|exit|quit|fail|kill|terminat|stop|raise|save|reset|close",
    re.I,
)
"""in the name of what a handler calls: it does more than continue"""
ONLY_LOGS = frozenset(
    [
        *("print", "debug", "info", "warning", "warn", "error", "exception", "critical", "log"),
        *("print_exc", "write", "sleep", "format_exc", "rank_zero_warn", "rank_zero_info"),
    ]
)
FIX = (
    "let it end the process and restart all ranks from a checkpoint (`holdfast run`, torchrun "
    "--max-restarts), or destroy the group and form a new one on every rank first"
)
BROKEN = "a failed collective leaves its group broken, and the other ranks may have moved on"


@FAULT.lint_python
def failed_collective_is_retried(program: Program, _: Source) -> Iterator[Finding]:
    for one in reached(program) if program.tries else ():
        guard = next(around(program, one.call.node), None)
        if guard is None:
            continue
        loop = _loop(program, guard)
        inside = program.target(one.call) if one.via else None
        if inside is not None and _makes_groups(program, inside):
            continue
        if loop is not None and _retries(program, guard, loop):
            yield FAULT.error(
                f"{one.said} is called again after it failed",
                reason=BROKEN,
                fix=FIX,
                at=program.place(one.call.node),
            )
        elif again := _again(program, guard, one):
            yield FAULT.error(
                f"after {one.said} failed, {dotted(again.func)} is called again",
                reason=BROKEN,
                fix=FIX,
                at=program.place(again),
            )


def _loop(program: Program, guard: ast.AST) -> ast.For | ast.While | None:
    for above in program.above(guard):
        if isinstance(above, Scope):
            return None
        if isinstance(above, ast.For | ast.While):
            return above
    return None


def _retries(program: Program, guard: ast.Try, loop: ast.For | ast.While) -> bool:
    """The loop exists for this: success leaves it, and a failure starts another iteration."""
    rest = _rest(program, guard)
    success = endings(program, [*guard.body, *guard.orelse, *rest])
    if FALLS in success and not _ends_by_condition(guard, loop) and not _counts_attempts(loop):
        return False
    if _makes_groups(program, loop):
        return False
    return any(
        _loops_again(program, handler, rest) and not _recovers(program, handler)
        for handler in _handlers(guard)
    )


def _rest(program: Program, guard: ast.AST) -> list[ast.stmt]:
    """What follows it in its block."""
    for block in ("body", "orelse", "finalbody"):
        statements = getattr(program.parents.get(guard), block, None)
        if isinstance(statements, list) and guard in statements:
            return statements[statements.index(guard) + 1 :]
    return []


def _handlers(guard: ast.Try) -> list[ast.ExceptHandler]:
    """Those that catch a failed collective; a batch that did not fit may be retried smaller."""
    return [
        one
        for one in guard.handlers
        if caught(one) & FAILURES and not ABOUT_MEMORY.search(" ".join(words(one)))
    ]


def _loops_again(program: Program, handler: ast.ExceptHandler, rest: list[ast.stmt]) -> bool:
    ends = endings(program, handler.body)
    if "continue" in ends:
        return True
    return FALLS in ends and bool(endings(program, rest) & {FALLS, "continue"})


def _ends_by_condition(guard: ast.Try, loop: ast.For | ast.While) -> bool:
    """`while not done:` with `done = True` inside the `try`."""
    if isinstance(loop, ast.For):
        return False
    asked = {node.id for node in ast.walk(loop.test) if isinstance(node, ast.Name)}
    tried = [*guard.body, *guard.orelse]
    return any(
        isinstance(node, ast.Assign) and {dotted(target) for target in node.targets} & asked
        for line in tried
        for node in ast.walk(line)
    )


def _counts_attempts(loop: ast.For | ast.While) -> bool:
    asked = loop.target if isinstance(loop, ast.For) else loop.test
    return any(RETRY.search(dotted(node)) for node in ast.walk(asked) if dotted(node))


def _calls(*bodies: ast.AST) -> Iterator[str]:
    """The last parts of the names of everything that is called in here."""
    for body in bodies:
        for node in ast.walk(body):
            if isinstance(node, ast.Call):
                yield dotted(node.func).rpartition(".")[2]


def _makes_groups(program: Program, *bodies: ast.AST) -> bool:
    """A new group is formed in here, or something is called that does so, or may well."""
    formers = {
        function.name
        for call in program.calls
        if call.method in GROUP_MAKERS and (function := program.function_of(call.node))
    }
    return any(
        name in GROUP_MAKERS or name in formers or FORMS.search(name) for name in _calls(*bodies)
    )


def _recovers(program: Program, handler: ast.ExceptHandler) -> bool:
    return _makes_groups(program, handler) or any(map(RECOVERS.search, _calls(handler)))


def _again(program: Program, guard: ast.Try, one: Exchange) -> ast.Call | None:
    """The handler makes the same call, or calls the function that it is in."""
    function, same = program.function_of(guard), ast.dump(one.call.node)
    itself = {function.name, f"self.{function.name}"} if function else set()
    for handler in _handlers(guard):
        inside = (n for line in handler.body for n in ast.walk(line))
        for node in (n for n in inside if isinstance(n, ast.Call)):
            if dotted(node.func) in itself or ast.dump(node) == same:
                return None if _recovers(program, handler) else node
    return None


# --- by a decorator or a helper -------------------------------------------------------------------


@FAULT.lint_python
def helper_retries_a_collective(program: Program, _: Source) -> Iterator[Finding]:
    seen: set[ast.AST] = set()
    for one in exchanges(program):
        function = program.function_of(one.call.node)
        for retrier in [*_decorators(function), *_helpers(program, one)]:
            name = program.name_of(retrier) or dotted(retrier)
            known = name.startswith(LIBRARIES)
            if retrier in seen or not (known or RETRY.search(name.rpartition(".")[2])):
                continue
            seen.add(retrier)
            if function is None or not _makes_groups(program, *function.body):
                yield (FAULT.error if known else FAULT.warning)(
                    f"{dotted(retrier)} calls {one.said} again after it failed",
                    reason=BROKEN,
                    fix=FIX,
                    at=program.place(retrier),
                )


def _decorators(function: Function | None) -> list[ast.expr]:
    every = function.decorator_list if function else []
    return [one.func if isinstance(one, ast.Call) else one for one in every]


def _helpers(program: Program, one: Exchange) -> Iterator[ast.expr]:
    """`retry(lambda: dist.all_reduce(x))`, `for attempt in Retrying(…): with attempt:`"""
    below: ast.AST = one.call.node
    for above in program.above(one.call.node):
        if isinstance(above, Function):
            return
        if isinstance(above, ast.Call) and isinstance(below, ast.Lambda):
            yield above.func
        over = above.iter if isinstance(above, ast.For) else None
        if isinstance(over, ast.Call) and program.name_of(over.func).startswith(LIBRARIES):
            yield over.func
        below = above


# --- the failure is ignored -----------------------------------------------------------------------


@FAULT.lint_python
def failure_is_swallowed(program: Program, source: Source) -> Iterator[Finding]:
    seen: set[ast.AST] = set()
    for one in exchanges(program) if program.tries else ():
        guard = next(around(program, one.call.node), None)
        if guard is None or guard in seen:
            continue
        seen.add(guard)
        if is_last_act(program, guard) or _makes_groups(program, guard):
            continue
        loop = _loop(program, guard)
        if loop is not None and _retries(program, guard, loop):
            continue
        for handler in _handlers(guard):
            if _swallows(program, handler) and _continues(source, program, guard, one):
                yield FAULT.warning(
                    f"this handler ignores a failure of {one.said} and continues",
                    reason=BROKEN + "; the next collective fails or hangs, far from here",
                    fix=f"`raise` at the end of the handler: {FIX}",
                    at=program.place(handler),
                )


def _swallows(program: Program, handler: ast.ExceptHandler) -> bool:
    """It only logs; anything else it sets or calls may pass the failure on."""
    ends = endings(program, handler.body)
    if ends - {FALLS, "continue"}:
        return False
    return all(_only_logs(line) for line in handler.body)


def _only_logs(line: ast.stmt) -> bool:
    if isinstance(line, ast.If):
        return all(map(_only_logs, [*line.body, *line.orelse]))
    if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call):
        return dotted(line.value.func).rpartition(".")[2] in ONLY_LOGS
    return isinstance(line, ast.Pass | ast.Continue) or (
        isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
    )


def _continues(source: Source, program: Program, guard: ast.Try, one: Exchange) -> bool:
    """Something that needs the group follows, or may follow outside this text."""
    function = program.function_of(guard)
    if function is not None or not source.complete or _loop(program, guard):
        return True
    end = guard.end_lineno or guard.lineno
    return any(other.call.node.lineno > end for other in exchanges(program) if other is not one)
