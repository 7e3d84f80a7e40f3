"""Errors that one rank swallows while the others wait."""

from __future__ import annotations

import pytest

from holdfast.source import swallowed
from tests.source.made import python
from tests.source.parted import HEAD, scripts

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
    assert [doubt.place.line for doubt in swallowed.doubts(source.program)] == lines


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
def test_errors_that_keep_nobody_waiting(script: str) -> None:
    source = python(HEAD + script)
    assert source.program is not None
    assert list(swallowed.doubts(source.program)) == []
