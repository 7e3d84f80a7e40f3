"""Where the report of a drill is written, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.analysis.drill.outcome import DrillReport
from holdfast.cli import drill
from holdfast.cli.main import main
from tests.view.sample_drills import a_report


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DrillReport:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "drills" / "one"
    folder.mkdir(parents=True)
    return a_report(folder=str(folder), page="")


def test_is_in_the_folder_of_the_drill(report: DrillReport) -> None:
    kept = drill.keep_report(report, "")
    assert kept.page == "drills/one/report.html"
    assert Path(kept.page).read_text().startswith("<!doctype html>")
    document = json.loads(Path("drills/one/report.json").read_text())
    assert document["page"] == "drills/one/report.html"
    assert len(document["drills"]) == len(report.rows)


def test_is_where_it_was_asked_for_as_well(report: DrillReport, tmp_path: Path) -> None:
    kept = drill.keep_report(report, "mine.html")
    assert kept.page == "mine.html"
    assert Path("mine.html").read_text() == Path("drills/one/report.html").read_text()
    elsewhere = tmp_path.parent / f"{tmp_path.name}.html"
    assert drill.keep_report(report, str(elsewhere)).page == str(elsewhere)


def test_a_page_that_cannot_be_written_costs_no_result(
    report: DrillReport, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = drill.keep_report(report, "no/such/folder/mine.html")
    assert kept.page == "drills/one/report.html"
    assert "no/such/folder/mine.html could not be written" in capsys.readouterr().err


def test_the_help_says_what_is_touched_and_what_the_exit_code_means(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["drill", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "your files and checkpoints are not touched" in said
    assert "{folder} in the script's arguments is the folder that the job runs in" in said
    assert "1 one was broken" in said
