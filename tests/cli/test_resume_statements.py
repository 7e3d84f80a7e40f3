"""What `holdfast run` says of a resume, of a script that saves and loads by itself, is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import resume_table


@pytest.mark.parametrize(
    "recipe",
    [
        "DCP",
        *(
            pytest.param(one, marks=pytest.mark.long)
            for one in resume_table.RECIPES
            if one != "DCP"
        ),
    ],
)
def test_every_statement_is_true(tmp_path: Path, recipe: str) -> None:
    for row in resume_table.rows(recipe, tmp_path, first_alone=False):
        assert row.right, row
