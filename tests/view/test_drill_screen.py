"""What a person sees of a drill while it runs, on a terminal and in a pipe."""

from __future__ import annotations

import fcntl
import io
import os
import re
from collections.abc import Iterator
from typing import TextIO

import msgspec
import pytest

from holdfast.view import drill_screen
from holdfast.view.drill_progress import of_reference, of_row
from holdfast.view.drill_screen import REFERENCE, DrillScreen
from tests.view.sample_drills import JOB, SKIPPED, a_report, a_row
from tests.window import Window, window

REPORT = a_report(a_row(), SKIPPED[2])
NAMES = [row.drill for row in REPORT.rows]
WRITES = "the job can write only to the drill's folder"


def drill(screen: DrillScreen) -> None:
    screen.begin(NAMES, WRITES)
    screen.running(REFERENCE, "starting 4 ranks")
    screen.running(REFERENCE, "step 12")
    screen.reference(JOB, 11.4)
    screen.running("rank-killed", "starting 4 ranks")
    screen.running("rank-killed", "step 12 of 60")
    screen.row(REPORT.rows[0])
    screen.row(REPORT.rows[1])


class Pipe(io.StringIO):
    """Like one: it has no number, and is no terminal."""


def test_in_a_pipe_a_line_when_a_drill_begins_and_one_when_it_ends() -> None:
    out, told = Pipe(), list[str]()
    screen = DrillScreen(out, told.append)
    drill(screen)
    screen.end(REPORT)
    assert out.getvalue().splitlines() == [
        f"holdfast> {WRITES}",
        "holdfast> an undisturbed reference, then 2 drills",
        "holdfast> reference: starting 4 ranks",
        f"holdfast> {of_reference(JOB, 11.4)}",
        "holdfast> drill 1 of 2, rank-killed: starting 4 ranks",
        f"holdfast> drill 1 of 2, rank-killed: {of_row(REPORT.rows[0])}",
        "holdfast> drill 2 of 2, gpu-oom: skipped: no GPU here",
    ]
    (table,) = told
    assert table.splitlines()[-1].startswith("1 of 1 drill kept every promise, 1 skipped")


def test_what_a_job_is_too_poor_to_show_is_said_with_its_reference() -> None:
    out = Pipe()
    DrillScreen(out).reference(msgspec.structs.replace(JOB, saved_after=()), 11.4)
    assert out.getvalue().splitlines()[-1] == (
        "holdfast> note: the undisturbed job saved no checkpoint: it can only restart from step 0"
    )


def test_text_from_outside_does_not_drive_the_terminal() -> None:
    out = Pipe()
    screen = DrillScreen(out)
    screen.begin(["x"], WRITES)
    screen.running("x\033[2J", "kill \r\nholdfast> fake \u202e")
    assert len(out.getvalue().splitlines()) == 3
    assert "\033" not in out.getvalue()
    assert "\u202e" not in out.getvalue()


# --- on a terminal -------------------------------------------------------------------------------

CODE = re.compile(r"\033\[(\d*)([AJm])|\033\[[\d;]*m|\r|\n|[^\r\n\033]+")


def seen(written: bytes, columns: int) -> list[str]:
    """What is on a terminal after all that: up, erase to the end, and text are all we use."""
    lines, at = [""], 0
    for code in CODE.finditer(written.decode()):
        if code[2] == "A":
            at -= int(code[1])
        elif code[2] == "J":
            del lines[at + 1 :]
            lines[at] = ""
        elif code[0] == "\n":
            at += 1
            lines += [""] * (at + 1 - len(lines))
        elif not code[0].startswith(("\033", "\r")):
            lines[at] += code[0]
            wraps = len(lines[at]) >= columns and not lines[at].startswith("holdfast> ")
            assert not wraps, "what wraps cannot be rewritten"
    return lines


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Window, TextIO]]:
    monkeypatch.setattr(drill_screen, "TICK", 3600)
    monkeypatch.setenv("TERM", "xterm")
    with window(rows=24, columns=100) as made, os.fdopen(os.dup(made.far), "w") as stream:
        yield made, stream


def test_on_a_terminal_the_table_is_drawn_in_place(shown: tuple[Window, TextIO]) -> None:
    made, stream = shown
    screen = DrillScreen(stream, clock=lambda: 5.0)
    drill(screen)
    made.shows(b"2 of 2 drills")
    lines = seen(made.look(), 100)
    assert lines[:3] == [
        f"holdfast> {WRITES}",
        "holdfast> an undisturbed reference, then 2 drills",
        f"holdfast> {of_reference(JOB, 11.4)}",
    ]
    assert lines[4].startswith("drill")
    assert lines[5].startswith("rank-killed")
    assert lines[5].endswith("kept")
    assert lines[6].endswith("skipped")
    assert lines[7:] == ["[########################] 2 of 2 drills"]
    screen.close()
    screen.close()
    made.shows(b"2 of 2 drills\n")
    assert seen(made.look(), 100)[7:] == ["[########################] 2 of 2 drills", ""]


def test_the_table_at_the_end_takes_the_place_of_the_live_one(
    shown: tuple[Window, TextIO],
) -> None:
    made, stream = shown
    screen = DrillScreen(stream, lambda table: print(table, file=stream, flush=True))
    drill(screen)
    screen.end(REPORT)
    made.shows(b"report.html\n")
    lines = seen(made.look(), 400)
    assert sum(line.startswith("rank-killed") for line in lines) == 1
    assert not any("2 of 2 drills" in line for line in lines)


def test_time_is_seen_to_pass(
    shown: tuple[Window, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, stream = shown
    monkeypatch.setattr(drill_screen, "TICK", 0.01)
    now = [100.0]
    screen = DrillScreen(stream, clock=lambda: now[0])
    screen.begin(NAMES, WRITES)
    screen.running("rank-killed", "step 12 of 60")
    now[0] = 142.0
    made.shows(b"step 12 of 60, 42 s")
    screen.close()


class LikeATerminal(io.TextIOWrapper):
    """A pipe that says it is one: unlike a real one it can be filled to the last byte."""

    def isatty(self) -> bool:
        return True


def test_a_screen_that_takes_nothing_does_not_stop_the_drill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drill_screen, "PATIENCE", 0.01)
    monkeypatch.setattr(drill_screen, "TICK", 3600)
    monkeypatch.setenv("TERM", "xterm")
    near, far = os.pipe()
    full = fcntl.fcntl(far, fcntl.F_GETPIPE_SZ)
    with LikeATerminal(os.fdopen(far, "wb"), "utf-8") as stream:
        screen = DrillScreen(stream)
        screen.begin(NAMES, WRITES)
        begun = os.read(near, full)
        assert os.write(far, b"x" * full) == full
        screen.running("rank-killed", "starting 4 ranks")
        screen.row(REPORT.rows[0])
        assert os.read(near, full) == b"x" * full
        screen.row(REPORT.rows[1])
        lines = seen(begun + os.read(near, full), 100)
    os.close(near)
    assert [line.split()[0] for line in lines] == [
        *("holdfast>", "holdfast>", "noticed", "drill", "rank-killed", "gpu-oom"),
        "[########################]",
    ], "the block that was on the screen all the time was erased"


def test_a_dumb_terminal_is_treated_as_a_pipe(
    shown: tuple[Window, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    made, stream = shown
    drill(DrillScreen(stream))
    made.shows(b"gpu-oom: skipped")
    assert b"\033" not in made.look()
