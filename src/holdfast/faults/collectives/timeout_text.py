"""An exception is tested for a word that torch does not use.

What you see   A collective times out, and the code written for that case does not run: the error
               goes to the branch for 'unexpected' ones, or is raised again.
Why            There is no exception class for timeouts, and no common wording. Gloo says `Timed
               out waiting 5000ms for recv operation to complete`, Work.wait `Operation timed out!`,
               the start `The client socket has timed out after …` or `Timed out after … seconds
               waiting for clients`; only the store says `wait timeout after …`, and NCCL's
               watchdog `collective operation timeout`. All are RuntimeError or derived from it;
               none is a TimeoutError.
How to be sure Give a Gloo group a timeout of a few seconds, let one rank skip the collective, and
               print the error.
Fix            Do not detect timeouts by their text: after any failed collective the group is
               unusable, so end the process. If you only want a better message, test for
               `re.search(r"tim(ed|e|ing) ?out", str(e), re.I)`.
Known limits   The texts are those of current torch releases; a test in another function than the
               `try` is not followed.
Sources        pytorch/gloo gloo/transport/tcp/unbound_buffer.cc (Timed out waiting)
               pytorch/pytorch torch/csrc/distributed/c10d/Work.cpp (Operation timed out!)
               pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (checkTimeout)
               pytorch/pytorch torch/csrc/distributed/c10d/socket.cpp, TCPStore.cpp
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from holdfast.analysis.source.collectives.communication import backends, reached, starts
from holdfast.analysis.source.collectives.timeout_arguments import is_store, is_work
from holdfast.analysis.source.program import Program, dotted
from holdfast.analysis.source.python.error_handling import FAILURES, around, caught
from holdfast.analysis.source.python.error_text_tests import TextTest, text_tests
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Finding

FAULT = Fault(
    code="HOLD614",
    slug="timeout-text",
    related=("except-nccl", "timeout-retry", "timeout-keyword"),
)

COLLECTIVE = (
    "[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 5000ms for recv operation to "
    "complete"
)
NCCL = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for "
    "600029 milliseconds before timing out."
)
WAIT = "Operation timed out!"
START = "The client socket has timed out after 60000ms while trying to connect to (node-a, 29500)."
STORE = "wait timeout after 5000ms, keys: /ready"
ABOUT_TIME = re.compile(r"time|timing|deadline", re.I)
NEVER = frozenset(["TimeoutError", "timeout", "Timeout"])
"""what no call of torch.distributed raises"""
FIX = (
    "end the process after any failed collective; if the text must decide, test for "
    '`re.search(r"tim(ed|e|ing) ?out", str(e), re.I)`'
)


@FAULT.lint_python
def tested_word_is_not_in_the_message(program: Program, source: Source) -> Iterator[Finding]:
    for guard, texts in _guards(source, program).items():
        for handler in guard.handlers:
            if caught(handler) & FAILURES:
                yield from _judge(program, guard, handler, texts)


def _judge(
    program: Program, guard: ast.Try, handler: ast.ExceptHandler, texts: dict[str, bool]
) -> Iterator[Finding]:
    tests = [t for t in text_tests(program, handler) if any(map(ABOUT_TIME.search, t.words))]
    missed = [text for text in texts if not any(test.finds(text) for test in tests)]
    if not tests or not missed:
        return
    never = len(missed) == len(texts) and all(texts.values()) and _only_torch(program, guard)
    report = FAULT.error if never else FAULT.warning
    yield report(
        f"the test for {_quoted(tests[0])} misses {_core(missed[0])!r}",
        reason="that is what torch raises on a timeout here"
        + (", so this test is never true" if never else "")
        + "; only the store ('wait timeout after') and NCCL's watchdog ('collective operation "
        "timeout') use the word 'timeout', and NCCL raises nothing unless configured to",
        fix=FIX,
        at=program.place(tests[0].node),
    )


def _quoted(test: TextTest) -> str:
    return repr(next(word for word in test.words if ABOUT_TIME.search(word)))


def _core(text: str) -> str:
    """Without the place in the source before it and the details behind it."""
    return re.split(r": | after | \(| \d", text.rpartition("] ")[2])[0]


def _guards(source: Source, program: Program) -> dict[ast.Try, dict[str, bool]]:
    """Every `try` around torch, with the texts that can arrive; True where it is certain."""
    found: dict[ast.Try, dict[str, bool]] = {}
    if not program.tries:
        return found
    for node, texts in _talk(source, program):
        for guard in around(program, node):
            found.setdefault(guard, {}).update(texts)
    return found


def _talk(source: Source, program: Program) -> Iterator[tuple[ast.Call, dict[str, bool]]]:
    known = backends(program)
    raising = source.setting("TORCH_NCCL_BLOCKING_WAIT") or source.setting("NCCL_BLOCKING_WAIT")
    text = NCCL if known == {"nccl"} and raising else COLLECTIVE
    for one in reached(program):
        yield one.call.node, {text: known == {"gloo"}}
    for call in starts(program):
        yield call.node, {START: False}
    for call in program.calls:
        func = call.node.func
        method = func.attr if isinstance(func, ast.Attribute) else ""
        if method == "wait" and is_work(program, func):
            yield call.node, {WAIT: known == {"gloo"}}
        elif method in ("wait", "get") and is_store(program, func):
            yield call.node, {STORE: True}


# --- a class that is never raised -----------------------------------------------------------------


@FAULT.lint_python
def no_call_raises_timeout_error(program: Program, source: Source) -> Iterator[Finding]:
    guards = _guards(source, program)
    for guard in guards:
        if not _only_torch(program, guard):
            continue
        for handler in guard.handlers:
            kinds = caught(handler)
            if kinds and kinds <= NEVER:
                yield FAULT.warning(
                    f"except {ast.unparse(handler.type or handler)} catches nothing here: "
                    "torch.distributed raises RuntimeError",
                    reason="timeouts of collectives, stores and the start are RuntimeError or "
                    "derived from it (DistBackendError, DistNetworkError, DistStoreError)",
                    fix="`except RuntimeError as e:`",
                    at=program.place(handler),
                )


def _only_torch(program: Program, guard: ast.Try) -> bool:
    """Nothing else in it could time out."""
    calls = (n for line in guard.body for n in ast.walk(line) if isinstance(n, ast.Call))
    for node in calls:
        name = program.name_of(node.func)
        plain = name.startswith(("torch.", "builtins.", "logging.", "datetime.", "time."))
        method = dotted(node.func).rpartition(".")[2]
        if not plain and method not in ("wait", "to", "cuda", "item", "info", "backward"):
            return False
    return True
