"""The walk-through in CONTRIBUTING.md works: its fault speaks and is silent as its tables say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

GUIDE = Path(__file__).parent.parent / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    """Everything up to the chapter on wreckage, typed into one file."""
    chapters = GUIDE.read_text().partition("## Teaching a fault to explain")[0]
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", chapters, re.MULTILINE | re.DOTALL):
        exec(compile(block, GUIDE.name, "exec"), names)
    return names


def test_the_lint_face(written: dict[str, Any]) -> None:
    for case in written["test_lint"].cases:
        found = written["FAULT"].ask_lint(case.source)
        assert tuple(one.place.line for one in found) == case.lines
        assert {one.status.value for one in found} <= {case.expected}
        assert all(word in found[0].summary for word in case.saying)


def test_the_foresee_face(written: dict[str, Any]) -> None:
    for case in written["test_check"].cases:
        (found,) = written["FAULT"].ask_check(case.facts)
        spoken = {"n/a": "skipped", "silent": "ok"}.get(case.expected, case.expected)
        assert found.status.value == spoken
        assert all(word in f"{found.summary} {found.reason}" for word in case.saying)
