"""`holdfast drill --json`: the fields that programs rely on, there and back."""

from __future__ import annotations

import json

import msgspec
import pytest

from holdfast.analysis.drill.outcome import DrillReport, DrillRow
from holdfast.errors import ConfigError
from holdfast.view import document
from tests.view.sample_drills import a_report, a_row


def without_curves(report: DrillReport) -> DrillReport:
    rows = tuple(msgspec.structs.replace(row, trained=()) for row in report.rows)
    return msgspec.structs.replace(report, rows=rows, reference=None)


def test_has_the_fields_that_are_promised() -> None:
    read = json.loads(document.drill(a_report()))
    assert list(read)[:3] == ["schema", "command", "job"]
    assert (read["schema"], read["command"]) == ("holdfast/1", "drill")
    assert read["job"] == ["examples/train.py", "--ckpts", "{folder}/ckpts"]
    assert read["counts"] == {"kept": 3, "broken": 2, "unproven": 1, "skipped": 3}
    first = read["drills"][0]
    assert set(first) == set(DrillRow.__struct_fields__) - {"trained"}
    assert first["noticed"] == 0.31
    assert first["timeline"][1]["kind"] == "fault"
    assert read["drills"][4]["broken"][0]["slug"] == "restart-from-zero"


def test_comes_back_as_it_went() -> None:
    back = document.drill_report(document.drill(a_report()))
    assert document.drill_report(document.drill(back)) == back
    assert to_milliseconds(back) == to_milliseconds(without_curves(a_report()))


def to_milliseconds(report: DrillReport) -> DrillReport:
    rows = tuple(
        msgspec.structs.replace(
            row, timeline=tuple(msgspec.structs.replace(o, t=round(o.t, 3)) for o in row.timeline)
        )
        for row in report.rows
    )
    return msgspec.structs.replace(report, rows=rows)


def test_times_are_in_milliseconds() -> None:
    read = json.loads(document.drill(a_report(a_row(noticed=0.123456), seconds=1.00049)))
    assert (read["drills"][0]["noticed"], read["seconds"]) == (0.123, 1.0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "holdfast/1", "command": "check"}',
                                  '{"schema": "holdfast/1", "command": "drill"}'])  # fmt: skip
def test_another_document_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="not printed by `holdfast drill --json`"):
        document.drill_report(text)


def test_names_that_are_no_utf8_can_be_printed() -> None:
    report = a_report(a_row(left=("process 7: \udcff",)), command=("tr\udcffain.py",))
    assert document.drill(report).encode()
