"""A heartbeat goes through the group that trains.

What you see   Training hangs or reads wrong numbers now and then; or it never begins, because the
               heartbeat's loop holds the main thread. When a rank is really gone, the heartbeat
               hangs with it.
Why            The operations of one group must run in the same order on every rank. A heartbeat of
               its own rhythm comes between the training's, at another place on each rank: its
               messages are taken for theirs. And it waits exactly as long as they do, so it tells
               nothing sooner.
How to be sure TORCH_DISTRIBUTED_DEBUG=DETAIL compares what each rank calls; the flight recorder
               shows the heartbeat between the collectives.
Fix            Keep it out of the group: the store (`store.set`, `store.get` with a timeout), a
               file, a UDP packet. Or let others watch: `holdfast run` notices lost, stuck and slow
               ranks from outside, the elastic agent and NCCL's watchdog do a part of it. A group
               of its own, `dist.new_group(backend="gloo")`, keeps the order sound, if it is used
               in one thread only.
Sources        https://docs.pytorch.org/docs/stable/distributed.html#synchronous-and-asynchronous-collective-operations
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage/communicators.html
               torch 2.13.0: torch/distributed/elastic/rendezvous/dynamic_rendezvous.py (keep-alive)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.analysis.source.collectives.communication import exchanges, own_group, reached
from holdfast.analysis.source.program import Function, Program, Scope, constant, dotted
from holdfast.analysis.source.python.error_handling import words
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(code="HOLD618", slug="heartbeat-in-band")

ABOUT_LIFE = re.compile(
    r"heart_?-?beat|keep_?-?alive|(\b|_)ping(\b|_|ing)|liveness|health_?check|check_?health"
    r"|monitor|still alive|is alive",
    re.I,
)
BEATS = re.compile(r"heart_?beat|keep_?alive", re.I)
THREADS = frozenset(["threading.Thread", "threading.Timer"])
TRAINS = frozenset(["backward", "DistributedDataParallel", "DDP", "FullyShardedDataParallel"])


@FAULT.lint_python
def it_shares_the_order(program: Program, _: Source) -> Iterator[Finding]:
    seen: set[ast.AST] = set()
    for one in reached(program):
        loop = _endless(program, one.call.node)
        if loop is None or loop in seen or own_group(one.inner):
            continue
        function = program.function_of(loop)
        threaded = function is not None and _in_a_thread(program, function)
        if not (_rests(loop) and (threaded or _about_life(program, loop))):
            continue
        seen.add(loop)
        both = threaded and _trains(program, loop)
        yield (FAULT.error if both else FAULT.warning)(
            f"this loop calls {one.said} on the default group"
            + (", beside the training in another thread" if both else ", again and again"),
            reason="operations of one group must come in the same order on every rank; these come "
            "between the training's at any time, and are taken for them"
            if threaded
            else "in the main thread nothing else gets a turn; in another it comes between the "
            "operations of the training, whose order must be the same on every rank",
            fix="beat through the store or a file instead, or let `holdfast run` watch from "
            'outside; at the least give it a group of its own, `dist.new_group(backend="gloo")`',
            at=program.place(one.call.node),
        )


def _endless(program: Program, node: ast.AST) -> ast.While | None:
    for above in program.above(node):
        if isinstance(above, Scope):
            return None
        if isinstance(above, ast.While) and _never_ends(above.test):
            return above
    return None


def _never_ends(test: ast.expr) -> bool:
    """`while True`, `while not stop`, `while self.running`: no count, no comparison."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return isinstance(test.operand, ast.Name | ast.Attribute | ast.Call)
    return bool(constant(test)) or isinstance(test, ast.Name | ast.Attribute)


def _rests(loop: ast.While) -> bool:
    """It waits between its rounds, and trains nothing itself."""
    calls = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
    called = {dotted(func).rpartition(".")[2] for func in calls}
    return bool(called & {"sleep", "wait"}) and not called & {"backward", "step", "zero_grad"}


def _about_life(program: Program, loop: ast.While) -> bool:
    function = program.function_of(loop)
    owner = program.parents.get(function) if function else None
    titles = [one.name for one in (function, owner) if isinstance(one, Function | ast.ClassDef)]
    named = (node.id for node in ast.walk(loop) if isinstance(node, ast.Name))
    return any(map(ABOUT_LIFE.search, [*titles, *words(loop)])) or any(map(BEATS.search, named))


def _in_a_thread(program: Program, function: Function) -> bool:
    """`Thread(target=beat)`, `Thread(target=self.beat)`, `class Beat(Thread)` with this as run."""
    owner = program.parents.get(function)
    if isinstance(owner, ast.ClassDef) and function.name == "run":
        return any(program.name_of(base) in THREADS for base in owner.bases)
    targets = (call.argument(1, "target") for call in program.calls if call.name in THREADS)
    names = {dotted(target).rpartition(".")[2] for target in targets if target is not None}
    return function.name in names


def _trains(program: Program, loop: ast.While) -> bool:
    """Another thread of this file talks on the default group as well."""
    others = (one.call for one in exchanges(program) if loop not in program.above(one.call.node))
    return any(not own_group(call) for call in others) or any(
        call.method in TRAINS for call in program.calls
    )
