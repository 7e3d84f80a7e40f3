"""The documentation says what the code says, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import write_docs, write_examples

ROOT = Path(__file__).parent.parent
MARKDOWN = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def test_the_fault_pages_are_up_to_date() -> None:
    written = {path.name: path.read_text() for path in write_docs.FOLDER.glob("*.md")}
    assert written == write_docs.everything(), "run `make docs`"


def test_the_table_of_variables_is_up_to_date() -> None:
    assert write_docs.VARIABLES.read_text() == write_docs.variable_page(), "run `make docs`"


def test_every_fault_has_an_example_that_is_what_holdfast_says_today() -> None:
    written = {path.name: path.read_text() for path in write_examples.FOLDER.glob("*.txt")}
    assert written == write_examples.everything(), "run `make docs`"


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text())
    assert [t for t in targets if not (page.parent / t).exists()] == []
