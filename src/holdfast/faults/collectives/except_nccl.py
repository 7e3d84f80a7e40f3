"""An except clause expects an error that NCCL does not raise.

What you see   A peer dies or is late, and the handler written for that never runs: after the
               timeout the process is ended by a signal, with `Watchdog caught collective operation
               timeout` in the log.
Why            A collective on an NCCL group returns at once; the GPU does the work later. When it
               fails, there is no call left to raise from: a watchdog thread notices it and ends the
               process. Only errors that are detected in the call itself (a wrong shape or device)
               reach an `except`. Gloo and the store do raise.
How to be sure `env | grep BLOCKING_WAIT` in a rank; and the exit status is that of SIGABRT (-6).
Fix            Expect the process to be ended, and restart from a checkpoint. If a handler must
               run: `work = dist.all_reduce(x, async_op=True)`, then
               `work.wait(timedelta(seconds=…))`, which raises (measured with torch 2.11). Do not
               use TORCH_NCCL_BLOCKING_WAIT=1: since torch 2.8 it leaves synchronous calls without
               any timeout (see async-handling-off). After a failure the group must be formed again.
Known limits   Where the script does not show its backend, only handlers that mention a timeout or a
               lost peer are reported.
Sources        torch 2.13.0: torch/distributed/distributed_c10d.py (init_process_group, timeout)
               torch 2.13.0: torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp (ErrorHandlingMode)
               https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.analysis.source.collectives.communication import (
    Exchange,
    backends,
    own_group,
    reached,
)
from holdfast.analysis.source.collectives.timeout_arguments import is_work
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.python.error_handling import (
    ABOUT_MEMORY,
    FAILURES,
    around,
    caught,
    endings,
    is_last_act,
    words,
)
from holdfast.analysis.source.source import Source
from holdfast.analysis.variables.parsing import torch_bool
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD617",
    slug="except-nccl",
    related=("timeout-retry", "timeout-text", "async-handling-off"),
)

BLOCKING = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
ABOUT_FAILURE = re.compile(
    r"tim(e|ed|ing)[ _-]?out|nccl|network|peer|node|straggl|hang|hung"
    r"|\brank\b.*\b(gone|dead|died|lost|fail|failed|missing)",
    re.I,
)
ONLY_DISTRIBUTED = frozenset(
    ["DistError", "DistBackendError", "DistNetworkError", "DistStoreError"]
)
"""exceptions that only a failed exchange raises"""


@FAULT.lint_python
def nccl_failure_is_not_raised(program: Program, source: Source) -> Iterator[Finding]:
    if not program.tries or _blocks(source):
        return
    known, seen = backends(program), set[ast.AST]()
    for one in reached(program) if known in ({"nccl"}, set()) else ():
        guard = next(around(program, one.call.node), None)
        if guard is None or guard in seen or own_group(one.inner) or _raises(program, guard):
            continue
        seen.add(guard)
        for handler in guard.handlers:
            meant = one.via is None or _expected(handler)  # far from the call: said so
            if meant and caught(handler) & FAILURES and _would_act(program, handler):
                yield from _judge(program, one, handler, sure=bool(known))


def _would_act(program: Program, handler: ast.ExceptHandler) -> bool:
    """It continues, or has something to do before the end: then it must run. A handler that only
    reports and raises again loses nothing."""
    if endings(program, handler.body) - {"raise", "exit"}:
        return True
    leaves = any(
        isinstance(line, ast.Raise) and "SystemExit" in ast.unparse(line) for line in handler.body
    )
    return _expected(handler) and (leaves or "exit" in endings(program, handler.body))


def _expected(handler: ast.ExceptHandler) -> bool:
    """Written for a failed exchange, not for whatever may go wrong."""
    said = " ".join(words(*handler.body))
    return bool(ABOUT_FAILURE.search(said) or caught(handler) & ONLY_DISTRIBUTED)


def _judge(
    program: Program, one: Exchange, handler: ast.ExceptHandler, *, sure: bool
) -> Iterator[Finding]:
    """Without a backend in sight only what says 'cuda' inside the `try`, and expects a timeout."""
    said, guard = " ".join(words(*handler.body)), program.parents[handler]
    expected = _expected(handler)
    if ABOUT_MEMORY.search(said):
        return
    if not sure and not (expected and isinstance(guard, ast.Try) and _on_gpu(guard)):
        return
    yield (FAULT.warning if sure and expected else FAULT.note)(
        f"timeouts and lost peers of {one.said} do not reach this except"
        + (": the group uses NCCL" if sure else " if the group uses NCCL"),
        reason="the call returns before the work is done; when the work fails, torch's watchdog "
        "ends the process. Only errors in the call itself, such as a wrong shape, are caught",
        fix="expect the process to be ended and restart from a checkpoint; if the handler must "
        "run, use `work = …(async_op=True)` and `work.wait(timedelta(seconds=…))`, which raises",
        at=program.place(handler),
    )


def _on_gpu(guard: ast.Try) -> bool:
    nodes = [node for line in guard.body for node in ast.walk(line)]
    return any(isinstance(node, ast.Attribute) and node.attr == "cuda" for node in nodes) or any(
        word.startswith("cuda") for word in words(*guard.body)
    )


def _blocks(source: Source) -> bool:
    """Set here or by what starts this script; or unset in a way that cannot be read."""
    found = [source.setting(name) for name in BLOCKING]
    found += [launch.setting(name) for launch in source.started_by for name in BLOCKING]
    return any(s is not None and (not s.known or torch_bool(s.value)) for s in found)


def _raises(program: Program, guard: ast.Try) -> bool:
    """A wait with its own timeout does raise; and nothing is expected of a clean-up."""
    return is_last_act(program, guard) or any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "wait"
        and bool(node.args or node.keywords)
        and is_work(program, node.func)
        for line in guard.body
        for node in ast.walk(line)
    )
