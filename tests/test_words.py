"""holdfast speaks plain engineering English: words that CONTRIBUTING.md rules out stay out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.places import ROOT, SOURCE

RULED_OUT = re.compile(
    r"\b(in vain|anew|shall|mend(?:ed|ing|s)?|likewise|watch on|st(?:ood|ands?) still|fell with|"
    r"tells? of|told of|is none of|no time at all|somebody|nobody|those who|whoever|hold-ups?|"
    r"held up|holds? (?:the job|the others|others|them|whom) up|recipes?|he|his|him|"
    r"all the same|fights itself|what becomes of|hearsay)\b",
    re.IGNORECASE,
)
ALLOWED = re.compile(
    r"shell-recipe|user nobody|`nobody`|nobody:|NobodyUser|uid 65534|shell_recipe",
)
GENERATED = ("docs/faults", "docs/variables.md", "docs/journal.md")
"""written from src/, which is read itself"""
PAGES = [
    page
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
    if not str(page.relative_to(ROOT)).startswith(GENERATED) and page.name != "CONTRIBUTING.md"
]


def strings(file: Path) -> Iterator[tuple[int, str]]:
    """Every text in a file of ours: messages, pages, docstrings; patterns of others' logs apart."""
    tree = ast.parse(file.read_text())
    foreign = {
        id(part)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _quotes_others(call)
        for part in ast.walk(call)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in foreign
        ):
            yield node.lineno, node.value


def _quotes_others(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in ("log_pattern", "LogPattern", "compile", "search", "match") or name.startswith(
        "_"
    )


def quaint(text: str) -> list[str]:
    return [found.group() for found in RULED_OUT.finditer(ALLOWED.sub("", text))]


@pytest.mark.parametrize(
    "file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE))
)
def test_source(file: Path) -> None:
    assert [(line, words) for line, text in strings(file) if (words := quaint(text))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path) -> None:
    lines = enumerate(page.read_text().splitlines(), 1)
    assert [(number, words) for number, line in lines if (words := quaint(line))] == []
