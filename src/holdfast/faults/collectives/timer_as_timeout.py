"""A threading.Timer is used as a timeout.

What you see   `timed out!` is printed, and the work continues, or keeps hanging, as before.
Why            A Timer runs a function in its own thread. That interrupts nothing: the main thread
               stays in its collective. An exception raised in the Timer's thread, sys.exit()
               included, ends only that thread. And the Timer itself needs the GIL: if the hung call
               holds it, not even the message appears.
How to be sure `threading.Timer(1, lambda: sys.exit(1)).start(); time.sleep(3); print("still here")`
Fix            `with holdfast.deadline("step", seconds=300):` ends the process from outside, and
               prints its stacks. For collectives use the group's timeout:
               init_process_group(timeout=timedelta(minutes=…)). By hand: a callback that calls
               faulthandler.dump_traceback() and then os._exit(1).
Known limits   Only Timers whose callback is in the same file are judged, in scripts that import a
               training library.
Sources        https://docs.python.org/3/library/threading.html#timer-objects
               https://docs.python.org/3/library/sys.html#sys.exit (only the main thread exits)
               https://docs.python.org/3/library/_thread.html#thread.interrupt_main
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.analysis.source.program import Call, Program, dotted
from holdfast.analysis.source.python.error_handling import words
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD616",
    slug="timer-as-timeout",
    related=("limit-exceeded", "timeout-keyword", "gil-held"),
)

TIMERS = ("threading.Timer",)
ABOUT_TRAINING = ("torch", "accelerate", "lightning", "pytorch_lightning", "deepspeed", "horovod")
ABOUT_TIME = re.compile(r"tim(e|ed|ing)[ _-]?out|deadline|watch_?dog|time[ _-]?limit", re.I)
LOGS = frozenset(["print", "debug", "info", "warning", "warn", "error", "exception", "critical"])
ALSO_LOGS = frozenset(["log", "write", "flush", "print_exc", "print_stack", "format_exc"])
QUITS_ITS_THREAD = frozenset(["sys.exit", "builtins.exit", "builtins.quit"])
INTERRUPTS = frozenset(["_thread.interrupt_main", "signal.raise_signal"])
FIX = (
    'use `with holdfast.deadline("step", seconds=300):`, which ends the process from outside and '
    "prints its stacks; for collectives give the group a timeout"
)


@FAULT.lint_python
def timer_interrupts_nothing(program: Program, _: Source) -> Iterator[Finding]:
    if not _about_training(program):
        return
    own = {c.name for c in program.classes if any(program.name_of(b) in TIMERS for b in c.bases)}
    for call in program.calls:
        if call.name in TIMERS or (not call.name and call.written in own):
            callback = call.argument(1, "function")
            if callback is not None:
                yield from _judge(program, call, callback)


def _about_training(program: Program) -> bool:
    return any(name.partition(".")[0] in ABOUT_TRAINING for name in program.imports.values())


def _judge(program: Program, call: Call, callback: ast.expr) -> Iterator[Finding]:
    body = _body(program, callback)
    at = program.place(call.node)
    if any(isinstance(n, ast.Raise) for n in _nodes(body)) or _calls_any(
        program, body, QUITS_ITS_THREAD
    ):
        if _ends_for_good(program, body):
            return
        yield FAULT.error(
            "what this Timer's callback raises ends only the Timer's own thread",
            reason="an exception (sys.exit() is one) does not reach the thread that is stuck",
            fix=FIX,
            at=at,
        )
    elif _calls_any(program, body, INTERRUPTS):
        yield FAULT.note(
            "interrupting the main thread does not end a blocked collective",
            reason="Python handles it at the next bytecode instruction; a thread that waits inside "
            "torch or NCCL does not reach one",
            fix=FIX,
            at=at,
        )
    elif body and _only_logs(program, body) and _is_about_time(program, call, callback, body):
        yield FAULT.warning(
            "this Timer only prints that time is up: what it guards continues",
            reason="its callback runs in its own thread and interrupts nothing; while a hung call "
            "holds the GIL it does not even run",
            fix=FIX,
            at=at,
        )


def _body(program: Program, callback: ast.expr) -> list[ast.stmt]:
    """What the callback does; empty where this file does not show it."""
    if isinstance(callback, ast.Lambda):
        return [ast.copy_location(ast.Expr(callback.body), callback.body)]
    written = dotted(callback)
    if program.name_of(callback) in (QUITS_ITS_THREAD | INTERRUPTS | {"builtins.print"}):
        call = ast.Call(func=callback, args=[], keywords=[])
        return [ast.copy_location(ast.Expr(ast.copy_location(call, callback)), callback)]
    found = program.target(Call(ast.Call(callback, [], []), "", written)) if written else None
    return found.body if found is not None else []


def _nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    return (node for line in body for node in ast.walk(line))


def _calls_any(program: Program, body: list[ast.stmt], named: frozenset[str]) -> bool:
    calls = (node for node in _nodes(body) if isinstance(node, ast.Call))
    return any(program.name_of(node.func) in named for node in calls)


def _ends_for_good(program: Program, body: list[ast.stmt]) -> bool:
    """It also does something that works, so it does not rely on raising."""
    return not _only_logs(program, body)


def _only_logs(program: Program, body: list[ast.stmt]) -> bool:
    for node in _nodes(body):
        if isinstance(node, ast.Call) and not _harmless(program, node):
            return False
        if isinstance(node, ast.Await) or (_is_set(node) and _is_read(program, node, body)):
            return False
    return True


def _is_set(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)


def _is_read(program: Program, flag: ast.AST, body: list[ast.stmt]) -> bool:
    """Code outside the callback reads what it has set, and may act on it."""
    inside = set(_nodes(body))
    return any(
        dotted(node).rpartition(".")[2] == dotted(flag).rpartition(".")[2]
        for node in program.parents
        if isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and node not in inside
    )


def _harmless(program: Program, node: ast.Call) -> bool:
    name = program.name_of(node.func)
    last = dotted(node.func).rpartition(".")[2]
    parent = program.parents.get(node)
    return (
        last in LOGS
        or last in ALSO_LOGS
        or name in QUITS_ITS_THREAD
        or name.startswith(("builtins.", "time.", "datetime."))
        or isinstance(parent, ast.Raise)
        or (isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant))
    )


def _is_about_time(program: Program, call: Call, callback: ast.expr, body: list[ast.stmt]) -> bool:
    """It claims to end something: a Timer that only reports slowness does no harm."""
    parent = program.parents.get(call.node)
    target = parent.targets[0] if isinstance(parent, ast.Assign) else callback
    flags = (dotted(node) for node in _nodes(body) if _is_set(node))
    said = [*words(*body), *flags, dotted(callback), dotted(target)]
    return any(map(ABOUT_TIME.search, said))
