"""How children start, and that no rule about processes and checkpoints fails on cut-up code."""

from __future__ import annotations

import ast
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.source.processes.children import processes
from holdfast.analysis.source.processes.start_method import forks, spawns
from holdfast.catalogue import by_slug
from holdfast.findings import Status
from tests.analysis.source.made_sources import python
from tests.faults.of import module_of_tests

RULES = [
    "unshared-tensor",
    "thread-lock-across-processes",
    "module-state-under-spawn",
    "missing-main-guard",
    "fork-cuda",
    "checkpoint-not-atomic",
    "checkpoint-lacks-state",
    "restart-from-zero",
    "data-position-lost",
    "elastic-lr-drift",
]
SNIPPETS = [
    case.source.program.text
    for slug in RULES
    for case in module_of_tests(by_slug(slug)).test_lint.cases
    if case.source.program is not None
]


@pytest.mark.parametrize(
    ("method", "python_version", "forked", "fresh"),
    [
        ("fork", "3.14.0", True, False),
        ("spawn", "", False, True),
        ("forkserver", "3.11.4", False, True),
        ("default", "", True, False),
        ("default", "3.13.9", True, False),
        ("default", "3.14.0rc1", False, True),
        ("unknown", "3.11.4", False, False),
    ],
)
def test_what_a_start_method_means(
    method: str, python_version: str, forked: bool, fresh: bool
) -> None:
    assert forks(method, python_version) == forked
    assert spawns(method, python_version) == fresh


@pytest.mark.parametrize(
    ("start", "method"),
    [
        ("mp.Process(target=work)", "default"),
        ("mp.get_context('spawn').Process(target=work)", "spawn"),
        ("ctx.Process(target=work)", "forkserver"),
        ("mp.get_context(args.method).Process(target=work)", "unknown"),
        ("mp.spawn(work)", "spawn"),
        ("mp.start_processes(work, start_method='fork')", "fork"),
        ("mp.Process(target=functools.partial(work, 1))", "default"),
        ("concurrent.futures.ProcessPoolExecutor(2, mp_context=ctx).submit(work)", "forkserver"),
        ("mp.Pool(2).starmap(work, [])", "default"),
    ],
)
def test_every_way_to_start_is_seen(start: str, method: str) -> None:
    text = (
        "import concurrent.futures, functools, torch.multiprocessing as mp\n"
        f"def work(n): pass\nctx = mp.get_context('forkserver')\n{start}\n"
    )
    program = python(text).program
    assert program is not None
    children = processes(program)
    assert children is not None
    assert [(one.function.name, one.method) for one in children.starts] == [("work", method)]


@given(st.sampled_from(SNIPPETS), st.integers(0, 2**32))
def test_no_rule_fails_on_code_with_statements_missing(text: str, seed: int) -> None:
    """What is cut away is what an excerpt in a document leaves out."""
    chance = random.Random(seed)
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and chance.random() < 0.4:
            body.pop(chance.randrange(len(body)))
            if not body and not isinstance(node, ast.Module):
                body.append(ast.Pass())
    source = python(ast.unparse(tree), complete=chance.random() < 0.5)
    for slug in RULES:
        failed = [f for f in by_slug(slug).ask_lint(source) if f.status is Status.SKIPPED]
        assert failed == []
