"""The table of drills in the README and in the proof: written from what was measured."""

from __future__ import annotations

import pytest

from holdfast.errors import ConfigError
from holdfast.view import document
from tests.places import ROOT
from tests.view.sample_drills import BROKEN, GOES_ON, SKIPPED, a_report, a_row
from tools import write_drill_table as writer

README = (ROOT / "README.md").read_text()
LOST = a_row("node-lost", does="bravo is cut off", named="node-lost: bravo", recovered=9.0)
JOBS = {
    "DDP, 4 ranks": a_report(a_row(), GOES_ON, SKIPPED[0], a_row("node-lost", status="skipped")),
    "two lab hosts": a_report(LOST, hosts=2),
}


def test_the_readme_shows_the_newest_drills() -> None:
    newest = writer.newest()
    assert (newest is None) == (writer.BEGIN not in README)
    if newest is not None:
        date = newest.stem.removeprefix("drill-")
        reports = writer.decoded(newest.read_bytes())
        assert writer.refreshed(README, reports, date) == README, "run tools.write_drill_table"
        assert newest.with_suffix(".md").read_text() == writer.proof(reports, date)


def test_the_table_comes_after_the_first_commands_and_only_once() -> None:
    once = writer.refreshed(README, JOBS, "2026-11-16")
    places = ("$ make test", "## One screen", writer.BEGIN, "## What it does")
    at = [once.index(place) for place in places]
    assert at == sorted(at), "what a run looks like comes before the table of faults"
    assert writer.refreshed(once, JOBS, "2026-11-16") == once
    assert once.count(writer.TITLE) == 1


def test_each_fault_is_shown_from_the_first_job_that_tried_it() -> None:
    table = writer.readme_table(JOBS, "2026-11-16").splitlines()
    assert table[2:4] == [
        "| a rank is killed | 0.3 s | rank-killed: rank 2 | 4.1 s | 4 | identical |",
        "| a node is lost | 0.3 s | node-lost: bravo | 9.0 s | 4 | identical |",
    ]
    assert table[5] == "All 3 drills kept every promise: 2 on DDP, 4 ranks; 1 on two lab hosts."
    assert "(proof/drill-2026-11-16.md)" in table[7]


def test_what_was_broken_is_never_left_out() -> None:
    table = writer.readme_table({"DDP": a_report(a_row(), *BROKEN)}, "2026-11-16")
    assert "| rank-stuck, DDP | 8.4 s | **wrong** straggler: rank 3 |" in table
    assert "**broken**: name, loss, clean |" in table
    assert "| save-killed, DDP |" in table
    assert "1 of 3 drills kept every promise: 3 on DDP." in table
    assert "Broken: rank-stuck on DDP (name: " in table
    assert "hangs in Python" not in table, "not as if it had been kept"


def test_the_proof_has_every_drill_and_every_reason() -> None:
    text = writer.proof({"DDP, 4 ranks": a_report()}, "2026-11-16")
    for row in a_report().rows:
        assert row.drill in text
    assert "- gpu-oom, skipped: no GPU here" in text
    assert "- external-sigterm, unproven: data: the inputs of a step could not be read" in text
    assert "- rank-stuck, broken name: named straggler on rank 3; it was rank 1" in text
    assert "**3 of 6 drills kept every promise" in text


def test_what_is_kept_for_the_test_names_no_place_of_this_machine() -> None:
    content = writer.encoded({"DDP": a_report()})
    assert b"drills/261116" not in content
    assert writer.decoded(content) == {"DDP": document.drill_report(
        document.drill(writer.bare(a_report())))}  # fmt: skip


@pytest.mark.parametrize("word", ["no-name.json", "="])
def test_a_report_without_a_name_or_file_is_refused(word: str) -> None:
    with pytest.raises((ConfigError, OSError)):
        writer.read([word])
