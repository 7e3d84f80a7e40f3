"""Every Python block of the pages about checkpoints runs as it stands, and so does the README's."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from tests.checkpoint.run_snippets import Snippet, snippets

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            *("checkpoints", "data-and-cadence", "checkpoint-storage", "with-trainers", "run"),
        )
    ),
]
ALL = [snippet for page in PAGES for snippet in snippets(page)]

FIRST_READ = ("README.md", "checkpoints.md")
"""pages that are tried every time; the others by `make proof`"""


@functools.cache
def run_page(page: Path) -> subprocess.CompletedProcess[str]:
    job = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    return subprocess.run(
        [sys.executable, "-m", "tests.checkpoint.run_snippets", str(page)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in job},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "page",
    # That page's frameworks are tested in tests/integrations.
    [
        pytest.param(page, marks=() if page.name in FIRST_READ else pytest.mark.long)
        for page in PAGES
        if snippets(page) and page.name != "with-trainers.md"
    ],
    ids=lambda page: page.name,
)
def test_the_blocks_of_a_page_run(page: Path) -> None:
    expected = [snippet for snippet in snippets(page) if not snippet.compiled_only]
    assert expected
    done = run_page(page)
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        f"{snippet.page}:{snippet.line}" for snippet in expected
    ]
    assert "inside a global batch" not in done.stderr


def test_the_readmes_loop_makes_one_step_a_global_batch() -> None:
    """It has 512 samples here, in global batches of 256: three epochs of 2 steps make its 6."""
    [loop] = [one for one in snippets(ROOT / "README.md") if "ckpt.step()" in one.text]
    assert "global_batch_size=256, micro_batch_size=8" in loop.text
    done = run_page(ROOT / "README.md")
    [line] = [
        line for line in done.stdout.splitlines() if line.split()[0] == f"README.md:{loop.line}"
    ]
    assert line.endswith("done at step 6"), "64 micro-batches of 8 are 2 steps, not 64"


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Every `holdfast.NAME(…)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            if isinstance(owner, ast.Name) and owner.id == "holdfast":
                yield node.func.attr, node


@pytest.mark.parametrize(
    "snippet",
    [one for one in ALL if not one.text.startswith(">>>")],
    ids=lambda one: f"{one.page}:{one.line}",
)
def test_calls_of_the_library_fit_its_signatures(snippet: Snippet) -> None:
    for name, call in calls(ast.parse(snippet.text)):
        assert name in holdfast.__all__, name
        signature = inspect.signature(getattr(holdfast, name))
        keywords = {word.arg: None for word in call.keywords if word.arg}
        signature.bind_partial(*call.args, **keywords)


def test_a_block_that_is_not_run_says_why() -> None:
    assert [one.compiled_only for one in ALL if one.compiled_only] == [
        "it needs a mesh of several ranks",
        *(f"it needs {name}" for name in ("transformers", "Lightning", "accelerate")),
    ]
