"""How the child processes of a script begin.

The start method decides what a child shares with its parent: all memory as it was ('fork'),
or what is passed, pickled ('spawn', 'forkserver'). Left alone it is 'fork' on Linux before Python
3.14 and 'forkserver' since (https://docs.python.org/3/whatsnew/3.14.html).
"""

from __future__ import annotations

import ast
from typing import NamedTuple

from holdfast.analysis.source.program import Call, Program, constant
from holdfast.analysis.source.python.flow import unconditional
from holdfast.analysis.source.python.name_values import Names, names

MODULES = (
    "multiprocessing",
    "torch.multiprocessing",
    "multiprocessing.context",
    "multiprocessing.process",
    "multiprocessing.pool",
    "torch.multiprocessing.pool",
    "multiprocessing.queues",
    "multiprocessing.synchronize",
)
METHODS = ("fork", "spawn", "forkserver")
EXECUTORS = (
    "concurrent.futures.ProcessPoolExecutor",
    "concurrent.futures.process.ProcessPoolExecutor",
)


class ContextObject(NamedTuple):
    """An object of multiprocessing: `ctx.Queue()` is ('Queue', 'spawn')."""

    kind: str
    method: str
    """'fork', 'spawn', 'forkserver', 'default' or 'unknown'"""


def forks(method: str, python: str) -> bool:
    """Children begin as copies of their parent, as far as can be told."""
    return method == "fork" or (method == "default" and not since_forkserver(python))


def spawns(method: str, python: str) -> bool:
    """Children begin with a fresh interpreter, for certain."""
    fresh = method in ("spawn", "forkserver")
    return fresh or (method == "default" and since_forkserver(python))


def since_forkserver(python: str) -> bool:
    """Python 3.14 changed the default of Linux; an unknown version counts as an older one."""
    parts = python.split(".")
    return len(parts) > 1 and parts[1].isdecimal() and (int(parts[0]), int(parts[1])) >= (3, 14)


class StartMethods:
    """What a script says about it, for all its processes or for those of one context."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.method = self._start_method()
        self._contexts = any(call.method == "get_context" for call in program.calls)

    @property
    def names(self) -> Names:
        return names(self.program)

    def _start_method(self) -> str:
        calls = self.program.called(*(f"{module}.set_start_method" for module in MODULES[:2]))
        said = {constant(call.argument(0, "method")) for call in calls}
        if not calls:
            return "default"
        sure = all(unconditional(self.program, call.node) for call in calls)
        (one, *others) = said
        return one if sure and not others and isinstance(one, str) and one in METHODS else "unknown"

    # --- what a call makes ----------------------------------------------------------------------

    def made(self, node: ast.AST) -> ContextObject | None:
        """What a call of multiprocessing (or of a context of it) makes."""
        if not isinstance(node, ast.Call):
            return None
        name = self.program.name_of(node.func)
        module, _, kind = name.rpartition(".")
        if module in MODULES:
            return ContextObject(kind, self.method)
        if name in EXECUTORS:
            return ContextObject("ProcessPoolExecutor", self._executor_method(node))
        if self._contexts and isinstance(node.func, ast.Attribute):
            method = self.context(node.func.value)
            return ContextObject(node.func.attr, method) if method else None
        return None

    def context(self, node: ast.expr) -> str:
        """The start method of `get_context('spawn')`, or of the name it was given; '' of others."""
        found = self.names.follow(node)
        if not isinstance(found, ast.Call):
            return ""
        module, _, kind = self.program.name_of(found.func).rpartition(".")
        if module not in MODULES or kind != "get_context":
            return ""
        said = Call(found, "", "").argument(0, "method")
        if said is None or (isinstance(said, ast.Constant) and said.value is None):
            return self.method
        word = constant(said)
        return word if isinstance(word, str) and word in METHODS else "unknown"

    def _executor_method(self, node: ast.Call) -> str:
        given = Call(node, "", "").argument(1, "mp_context")
        return self.method if given is None else self.context(given) or "unknown"
