"""A heartbeat uses the process group that trains.

What you see   Training occasionally hangs or reads wrong numbers; or it never begins, because the
               heartbeat's loop occupies the main thread. When a rank is really gone, the heartbeat
               hangs with it.
Why            The operations of one group must run in the same order on every rank. A heartbeat
               with its own rhythm comes between those of the training, at a different place on each
               rank, and its messages are mistaken for theirs. And it waits exactly as long as they
               do, so it detects nothing sooner.
How to be sure TORCH_DISTRIBUTED_DEBUG=DETAIL compares what each rank calls; the flight recorder
               shows the heartbeat between the collectives.
Fix            Keep it out of the group: use the store (`store.set`, `store.get` with a timeout), a
               file, a UDP packet. Or monitor from outside: `holdfast run` notices lost, stuck and
               slow ranks; the elastic agent and NCCL's watchdog do a part of it. A separate group,
               `dist.new_group(backend="gloo")`, keeps the order intact if only one thread uses it.
Known limits   A heartbeat is recognised by an endless loop that sleeps, in a thread or with a name
               such as `heartbeat` or `monitor`; one driven by a timer or a callback is not seen.
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

FAULT = Fault(
    code="HOLD618",
    slug="heartbeat-in-band",
    related=("collective-mismatch", "timer-as-timeout", "rank-stuck"),
)

ABOUT_LIVENESS = re.compile(
    r"heart_?-?beat|keep_?-?alive|(\b|_)ping(\b|_|ing)|liveness|health_?check|check_?health"
    r"|monitor|still alive|is alive",
    re.I,
)
BEATS = re.compile(r"heart_?beat|keep_?alive", re.I)
THREADS = frozenset(["threading.Thread", "threading.Timer"])
TRAINS = frozenset(["backward", "DistributedDataParallel", "DDP", "FullyShardedDataParallel"])


@FAULT.lint_python
def heartbeat_shares_the_training_group(program: Program, _: Source) -> Iterator[Finding]:
    seen: set[ast.AST] = set()
    for one in reached(program):
        loop = _endless(program, one.call.node)
        if loop is None or loop in seen or own_group(one.inner):
            continue
        function = program.function_of(loop)
        threaded = function is not None and _in_a_thread(program, function)
        if not (_sleeps(loop) and (threaded or _about_liveness(program, loop))):
            continue
        seen.add(loop)
        both = threaded and _trains(program, loop)
        yield (FAULT.error if both else FAULT.warning)(
            f"this loop calls {one.said} on the default group"
            + (" while another thread trains" if both else " repeatedly"),
            reason="operations of one group must run in the same order on every rank; these come "
            "between those of the training at any time and are mistaken for them"
            if threaded
            else "in the main thread it blocks everything else; in another thread it comes between "
            "the operations of the training, whose order must be the same on every rank",
            fix="send the heartbeat through the store or a file, or monitor from outside with "
            '`holdfast run`; at least use a separate group, `dist.new_group(backend="gloo")`',
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


def _sleeps(loop: ast.While) -> bool:
    """It sleeps between iterations and does not train itself."""
    calls = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
    called = {dotted(func).rpartition(".")[2] for func in calls}
    return bool(called & {"sleep", "wait"}) and not called & {"backward", "step", "zero_grad"}


def _about_liveness(program: Program, loop: ast.While) -> bool:
    function = program.function_of(loop)
    owner = program.parents.get(function) if function else None
    titles = [one.name for one in (function, owner) if isinstance(one, Function | ast.ClassDef)]
    named = (node.id for node in ast.walk(loop) if isinstance(node, ast.Name))
    return any(map(ABOUT_LIVENESS.search, [*titles, *words(loop)])) or any(map(BEATS.search, named))


def _in_a_thread(program: Program, function: Function) -> bool:
    """`Thread(target=beat)`, `Thread(target=self.beat)`, `class Beat(Thread)` with this as run."""
    owner = program.parents.get(function)
    if isinstance(owner, ast.ClassDef) and function.name == "run":
        return any(program.name_of(base) in THREADS for base in owner.bases)
    targets = (call.argument(1, "target") for call in program.calls if call.name in THREADS)
    names = {dotted(target).rpartition(".")[2] for target in targets if target is not None}
    return function.name in names


def _trains(program: Program, loop: ast.While) -> bool:
    """Another thread of this file uses the default group as well."""
    others = (one.call for one in exchanges(program) if loop not in program.above(one.call.node))
    return any(not own_group(call) for call in others) or any(
        call.method in TRAINS for call in program.calls
    )
