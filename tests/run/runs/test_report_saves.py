"""Saves and repeated steps in the report, from the records of a journal."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.job.journal_records import JournalRecord
from holdfast.run.runs.report_saves import lines
from tests.run.journals import record


def saves(*times: float, stall: float = 0.25, **fields: Any) -> list[JournalRecord]:
    cost = {"stall": stall, "seconds": 1.0, "path": "/c", "attempt": 0}
    return [record("saved", t=at, step=int(at), **{**cost, **fields}) for at in times]


def test_saves_are_counted_and_what_was_done_twice() -> None:
    records = [
        record("saved", step=600, path="/c/a", stall=0.5),
        record("save-failed", step=900),
        record("saved", step=1200, path="/c/b", stall=0.25),
        record("resume", attempt=1, step=1200, reached=1237, repeated=37),
        record("first-step", attempt=2, digest="", guess="zero", reached=1300, repeated=1300),
    ]
    first = "2 checkpoints saved, 1 failed, the last at step 1200 in /c/b; saving paused training"
    assert lines(records) == [
        f"{first} for 0.8 s",
        "restart 1: 37 of 1237 steps done again",
        "restart 2: 1300 of 1300 steps done again",
    ]
    cut_short = [records[3], record("progress", attempt=1, steps=11)]
    assert lines(cut_short)[1:] == ["restart 1: 11 of 1237 steps done again"]
    assert lines([record("save-failed", step=9)]) == ["no checkpoint was saved, 1 failed"]


def test_a_run_that_could_save_and_did_not_says_so() -> None:
    (told,) = lines([record("resume", step=0), record("progress", steps=40)])
    assert told.startswith("no checkpoint was saved")
    assert "ckpt.save()" in told


def test_a_run_without_checkpoints_says_nothing_of_them() -> None:
    assert lines([]) == []
    assert lines([record("progress", steps=3), record("end", exit_code=0)]) == []


def test_how_often_is_told_with_what_it_costs() -> None:
    often = lines([*saves(10, 12, 14, 16, stall=1.0), record("end", t=100, exit_code=0)])[-1]
    assert "saving every 2 s loses about" in often
    assert "a save pauses training for 1 s" in often
    assert len(lines(saves(10, 300))) == 1, "two tell nothing about how often"
    assert len(lines(saves(10, 12, 14, 16))) == 1, "nor does a run that is over so soon"


def test_how_often_is_by_the_clock_of_the_rank_not_of_the_one_who_hears() -> None:
    heard_at_once = [
        msgspec.structs.replace(one, told_at=100.0 * number)
        for number, one in enumerate(saves(500, 500.1, 500.2))
    ]
    assert "saving every 100 s" in lines([record("launch", t=1), *heard_at_once])[-1]


def test_the_time_of_a_restart_is_no_interval() -> None:
    steady = lines(saves(100, 400, 700))[-1]
    across = lines([*saves(100, 400, 700), *saves(9000, attempt=1)])[-1]
    assert "saving every 5 minutes" in steady
    assert "saving every 5 minutes" in across
