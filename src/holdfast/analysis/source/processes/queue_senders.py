"""Child processes that put tensors into a queue and end, perhaps before they are read.

With torch's usual sharing strategy a queue carries no tensor, only where to fetch it: from the
process that put it, as long as that lives (torch/multiprocessing/reductions.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.processes.children import Processes, ProcessStart, processes
from holdfast.analysis.source.program import Call, Function, Program, constant, dotted
from holdfast.analysis.source.python.flow import may_reach
from holdfast.analysis.source.python.name_values import names

TENSORS = frozenset(
    {
        *("tensor", "zeros", "ones", "rand", "randn", "empty", "full", "arange", "randint", "eye"),
        *("stack", "cat", "zeros_like", "ones_like", "randn_like", "from_numpy", "load"),
    }
)
"""torch functions that return a tensor"""
METHODS = frozenset(["clone", "detach", "cpu", "cuda", "state_dict", "share_memory_"])
WAITS = frozenset(["wait", "get", "recv", "sleep", "acquire", "join", "pause"])
"""calls by which a child stays until it is told"""


class ShortLivedSender(NamedTuple):
    put: Call
    get: Call
    joined: bool
    """the parent waits for its end first"""


def short_lived_senders(program: Program) -> Iterator[ShortLivedSender]:
    children = processes(program)
    if children is None or _shares_files(program):
        return
    for start in children.starts:
        if start.kind in ("Process", "mp.spawn"):
            yield from _of(program, children, start)


def _shares_files(program: Program) -> bool:
    """The other strategy, or a manager, needs no sender."""
    calls = program.called("torch.multiprocessing.set_sharing_strategy")
    other = any(constant(call.argument(0, "new_strategy")) == "file_system" for call in calls)
    return other or "Manager(" in program.text


def _of(program: Program, children: Processes, start: ProcessStart) -> Iterator[ShortLivedSender]:
    calls = program.calls_in(start.function)
    puts = [c for c in calls if c.method in ("put", "put_nowait") and _sends_tensor(program, c)]
    if not puts:
        return
    last = puts[-1]
    if any(c.method in WAITS and may_reach(program, last.node, c.node) for c in calls):
        return
    queue = dotted(last.node.func).rpartition(".")[0]
    given = start.given.get(queue)
    outside = dotted(given) if given is not None else queue
    if not outside or not _is_queue(children, given, outside, start):
        return
    yield from _read_late(program, start, last, outside)


def _is_queue(
    children: Processes, given: ast.expr | None, outside: str, start: ProcessStart
) -> bool:
    """Made by multiprocessing, as far as the script shows."""
    at = given if given is not None else start.function
    values = children.names.values(outside, at)
    kinds = [made.kind for value in values if (made := children.made(value))]
    return any(kind in ("Queue", "SimpleQueue", "JoinableQueue") for kind in kinds)


def _read_late(
    program: Program, start: ProcessStart, put: Call, queue: str
) -> Iterator[ShortLivedSender]:
    home: Function | None = program.function_of(start.call.node)
    here = [c for c in program.calls if program.function_of(c.node) is home]
    gets = [c for c in here if c.written in (f"{queue}.get", f"{queue}.get_nowait")]
    gets = [c for c in gets if may_reach(program, start.call.node, c.node)]
    if not gets:
        return
    joins = [c for c in here if c.method == "join" and not c.node.args and not c.node.keywords]
    joins = [c for c in joins if may_reach(program, start.call.node, c.node)]
    first = gets[0]
    spawn_waits = start.kind == "mp.spawn" and constant(start.call.keyword("join")) is not False
    before = spawn_waits or any(c.node.lineno < first.node.lineno for c in joins)
    yield ShortLivedSender(put, first, joined=before)


def _sends_tensor(program: Program, call: Call) -> bool:
    sent = call.argument(0, "obj")
    if sent is None:
        return False
    parts = sent.elts if isinstance(sent, ast.Tuple | ast.List) else [sent]
    if isinstance(sent, ast.Dict):
        parts = sent.values
    return any(_is_tensor(program, one) for one in parts)


def _is_tensor(program: Program, node: ast.expr) -> bool:
    value = names(program).follow(node)
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        name = program.name_of(value.func) if isinstance(value, ast.Call) else ""
        return name.startswith("torch.") and name[6:] in TENSORS
    name = program.name_of(value.func)
    if name:
        return name.startswith("torch.") and name[6:] in TENSORS
    return value.func.attr in METHODS
