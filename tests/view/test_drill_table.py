"""The table of a drill: every width, every kind of row, nothing that drives the terminal."""

from __future__ import annotations

import re

import pytest

from holdfast.analysis.drill.outcome import BrokenPromise
from holdfast.view.drill_page import page
from holdfast.view.drill_table import Table, command_line, last_line, seconds, whole
from tests.view.sample_drills import a_report, a_row

ESCAPES = re.compile(r"\033\[[\d;]*m")
LONG = "checkpoint-corrupt/truncated-in-the-middle"


@pytest.mark.parametrize("width", [40, 80, 100, 107, 108, 120, 200])
def test_fits_its_width_and_keeps_its_columns(width: int) -> None:
    table = Table(["rank-killed", LONG], width)
    lines = [*table.heads(), table.row(a_row()), table.row(a_row(LONG, left=("x", "y")))]
    assert all(len(line) <= max(80, min(width, 120)) for line in lines), lines
    head, *rows = lines[1:]
    assert all(row[head.index("promise") :] == "kept" for row in rows)
    assert all(row[head.index("named") :].startswith("right ") for row in rows)


def test_says_the_figures() -> None:
    words = Table(["rank-killed"], 120).row(a_row()).split()
    assert words == ["rank-killed", "0.3", "s", "right", "4.1", "s", "4", "identical", "identical",
                     "identical", "nothing", "kept"]  # fmt: skip


def test_a_narrow_one_shows_the_worst_of_data_loss_and_weights() -> None:
    table = Table(["rank-killed"], 80)
    assert " unknown " in table.row(a_row(data="unknown", loss="same"))
    assert " differs " in table.row(a_row(data="unknown", weights="differs"))
    assert " same " in table.row(a_row(loss="same"))


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "-"), (0.0, "0 ms"), (0.0424, "42 ms"), (0.31, "0.3 s"), (9.949, "9.9 s"),
     (9.96, "10 s"), (99.4, "99 s"), (99.6, "1.7 min"), (600.0, "10.0 min")],
)  # fmt: skip
def test_seconds_in_words(value: float | None, said: str) -> None:
    assert seconds(value) == said


def test_every_broken_promise_says_what_was_seen_and_what_to_change() -> None:
    said = " ".join(whole(a_report(), width=120).split())
    for row in a_report().broken:
        assert f"broken {row.drill}: {row.does}" in said
        assert row.folder in said
        for broken in row.broken:
            assert broken.seen in said
            assert broken.fix in said
        assert all(one in said for one in row.left)


def test_one_cause_of_several_drills_is_said_once() -> None:
    lost = BrokenPromise(promise="data", seen="the batches come again", fix="save its place")
    names = ("rank-killed", "rank-frozen", "checkpoint-corrupt")
    rows = [a_row(name, status="broken", broken=(lost,)) for name in names]
    said = whole(a_report(*rows), width=120)
    assert "broken, same cause in 3 drills: rank-killed, rank-frozen, checkpoint-corrupt" in said
    assert said.count("save its place") == 1
    assert page(a_report(*rows)).count("save its place") == 1


def test_drills_skipped_for_one_reason_share_a_line() -> None:
    lines = whole(a_report(), width=120).splitlines()
    assert "skipped link-cut, mtu-black-hole: needs several hosts: add `--hosts 2`" in lines
    assert "skipped gpu-oom: no GPU here" in lines
    assert "unproven external-sigterm: data: the inputs of a step could not be read" in lines


def test_the_last_line_counts_and_names_the_report() -> None:
    assert whole(a_report(), width=100).splitlines()[-1] == (
        "3 of 6 drills kept every promise, 2 broken, 1 unproven, 3 skipped, in 2.4 min; "
        "report: drills/261116-171500-train/report.html"
    )
    assert last_line(a_report(a_row(), page="")) == "1 of 1 drill kept every promise, in 2.4 min"
    skipped = a_row(status="skipped", why="no")
    assert last_line(a_report(skipped, page="")).startswith("no drill was tried, 1 skipped")


def test_a_job_that_does_not_repeat_its_bits_is_told_so() -> None:
    said = "does not repeat its own bits"
    assert said in whole(a_report(a_row(repeats_itself=False), a_row()), width=100)
    assert said not in whole(a_report(a_row(repeats_itself=None)), width=100)


def test_colour_adds_nothing_but_colour() -> None:
    plain = whole(a_report(), width=120)
    coloured = whole(a_report(), width=120, colour=True)
    assert coloured != plain
    assert ESCAPES.sub("", coloured) == plain


def test_text_from_outside_does_not_drive_the_terminal() -> None:
    hostile = a_row(
        "x\033[2J",
        does="kill \u202ereversed\r\nfake: all kept",
        status="broken",
        left=("process 1: \033]0;title\a",),
        broken=(promise("seen \033[31m\nholdfast> done"),),
    )
    said = whole(a_report(hostile), width=120)
    assert "\033" not in said
    assert "\u202e" not in said
    assert "\r" not in said
    assert not any(line.startswith(("fake", "holdfast>")) for line in said.splitlines())


def promise(seen: str) -> BrokenPromise:
    return BrokenPromise(promise="name", seen=seen)


def test_the_command_can_be_typed_again() -> None:
    report = a_report(command=("--nproc-per-node", "2", "my train.py", "{folder}/x"))
    assert command_line(report) == "holdfast drill --nproc-per-node 2 'my train.py' '{folder}/x'"
    other = a_report(command=("t.py",), hosts=2, runner="torchrun")
    assert command_line(other) == "holdfast drill --hosts 2 --runner torchrun t.py"


@pytest.mark.parametrize(
    ("right", "named", "said"),
    [(True, "rank-killed: rank 2", "right"), (False, "straggler: rank 3", "WRONG"),
     (False, "", "never"), (None, "", "-")],
)  # fmt: skip
def test_whether_it_was_named(right: bool | None, named: str, said: str) -> None:
    row = a_row(named_right=right, named=named)
    assert Table(["rank-killed"], 120).row(row).split()[3] == said
