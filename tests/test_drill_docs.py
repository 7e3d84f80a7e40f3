"""docs/drill.md says what the code says: every drill, every field, every option."""

from __future__ import annotations

import json
import re

import pytest

from holdfast import catalogue
from holdfast.analysis.drill.injection import Then
from holdfast.analysis.drill.outcome import BrokenPromise, DrillReport, DrillRow
from holdfast.drill import asked
from holdfast.view import document
from tests.places import ROOT
from tests.view.sample_drills import a_report
from tools import write_drills

PAGE = (ROOT / "docs" / "drill.md").read_text()


def section(title: str) -> str:
    (found,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def first_cells(text: str) -> set[str]:
    """The names in the first cell of each row."""
    cells = re.findall(r"^\| (.*?) \|", text, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}


def test_the_table_of_drills_is_up_to_date() -> None:
    assert write_drills.refreshed(PAGE) == PAGE, "run `make docs`"


def test_the_job_of_the_table_is_one_that_every_drill_can_be_held_on() -> None:
    told = [
        write_drills.row(entry.fault, drill)
        for entry in catalogue.entries()
        for drill in entry.fault.drills
    ]
    assert [row for row in told if not any(f" | {then.value} | " in row for then in Then)] == []


def test_says_what_must_become_of_the_job_in_each_case() -> None:
    said = section("Every drill")
    assert [then.value for then in Then if f"\n| {then.value} | " not in said] == []


def test_every_field_of_the_document_is_described_and_no_other() -> None:
    printed = json.loads(document.drill(a_report()))
    fields = {*printed} - {"schema", "command"} | {*printed["drills"][0]}
    assert first_cells(section("JSON")) == fields
    assert set(DrillRow.__struct_fields__) - {"trained"} <= fields
    assert set(DrillReport.__struct_fields__) - {"reference", "rows", "command"} <= fields
    assert all(f"`{name}`" in section("JSON") for name in BrokenPromise.__struct_fields__)


@pytest.mark.parametrize("option", [*asked.ALONE, *asked.VALUED])
def test_every_option_is_described(option: str) -> None:
    assert option in PAGE
