"""Errors that one rank swallows while the others wait."""

from __future__ import annotations

import pytest

from holdfast.analysis.source.ranks import swallowed_errors
from tests.analysis.source.made_sources import python
from tests.analysis.source.ranks.rank_scripts import HEAD, scripts

TRY = """
for batch in loader:
    try:
        loss = model(batch)
        dist.all_reduce(loss)
    except {kind}:
        {then}
"""


@pytest.mark.parametrize(
    ("kind", "then", "lines"),
    [
        ("RuntimeError", "continue", [9]),
        ("Exception as e", "print(e)", [9]),
        ("torch.cuda.OutOfMemoryError", "torch.cuda.empty_cache()", [9]),
        ("RuntimeError", "raise", []),
        ("RuntimeError", "sys.exit(1)", []),
        ("RuntimeError", "dist.all_reduce(zero)", []),
        ("StopIteration", "pass", []),
    ],
)
def test_an_error_swallowed_before_a_meeting(kind: str, then: str, lines: list[int]) -> None:
    source = python(HEAD + TRY.format(kind=kind, then=then))
    assert source.program is not None
    assert [doubt.place.line for doubt in swallowed_errors.problems(source.program)] == lines


OWN = """
def load(rank, folder):
    try:
        rows = {work}
    except {kind}:
        {then}
    dist.barrier()
    return rows
"""


@pytest.mark.parametrize(
    ("work", "kind", "then", "found"),
    [
        ('read(f"{folder}/{rank}.bin")', "OSError", "return None", True),
        ("read(folder, part=rank)", "(OSError, ValueError)", "return", True),
        ("read(folder)", "OSError", "return None", False),  # the same on every rank
        ("read(folder, rank)", "OSError", "rows = None", False),
        ("read(folder, rank)", "OSError", "raise", False),
        ("read(folder, rank)", "OSError", "dist.barrier(); return None", False),
        ("print(rank)", "OSError", "return None", False),
        ("read(folder, rank)", "ImportError", "return None", False),
    ],
)
def test_leaving_after_a_failure_of_ones_own(work: str, kind: str, then: str, found: bool) -> None:
    source = python(HEAD + OWN.format(work=work, kind=kind, then=then))
    assert source.program is not None
    doubts = list(swallowed_errors.problems(source.program))
    assert [bool("dist.barrier" in doubt.summary) for doubt in doubts] == [True] * found


HARMLESS = scripts("""
try:
    work(x)
    dist.barrier()
except RuntimeError:
    pass
---
for b in data:
    try:
        dist.all_reduce(b)
    except RuntimeError:
        pass
---
for b in data:
    try:
        work(b)
    except OSError:
        pass
    dist.barrier()
---
for b in data:
    try:
        work(b)
        dist.barrier()
    except OSError:
        pass
    finally:
        dist.barrier()
""")


@pytest.mark.parametrize("script", HARMLESS)
def test_errors_that_keep_no_rank_waiting(script: str) -> None:
    source = python(HEAD + script)
    assert source.program is not None
    assert list(swallowed_errors.problems(source.program)) == []
