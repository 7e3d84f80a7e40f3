"""What a person sees of a running job, on a terminal and in a pipe."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import time
from collections.abc import Iterator
from typing import Any, TextIO

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.scene.scene import Beat, Death, RankView, Scene
from holdfast.fault import Fault
from holdfast.findings import Evidence
from holdfast.view import run_screen
from holdfast.view.run_screen import Screen, judgement, status
from tests.system.sockets import wait_for

FAULT = Fault(code="HOLD606", slug="rank-stuck")


def a_beat(**seen: Any) -> Beat:
    fields: dict[str, Any] = {
        "torch_imported": True, "group_ready": True, "steps": 1200, "step_at": 99.9,
        "usual_step": 0.061, "beat_at": 99.95, "phase": "", "limit_name": "", "limit_until": 0.0,
        "group_timeout": 1800.0,
    }  # fmt: skip
    return Beat(**{**fields, **seen})


def a_rank(number: int, beat: Beat | None, death: Death | None = None) -> RankView:
    return RankView(
        rank=number, local_rank=number, pid=4700 + number, host="b", beat=beat, activity=None,
        alive_at=99.9, state_since=90.0, death=death, words=None, stack=None, recorder=None,
    )  # fmt: skip


def a_scene(*ranks: RankView) -> Scene:
    return Scene(
        now=100.0, attempt=0, started_at=60.0, ranks=ranks, longest_pause=0.0, oom_kills=0,
        kernel_events=(), told_to_stop="", evidence_at=0.0,
    )  # fmt: skip


HEALTHY = a_scene(*(a_rank(n, a_beat()) for n in range(4)))


def test_the_status_is_one_calm_line() -> None:
    assert status(HEALTHY) == "4 ranks, step 1200, 61 ms a step"
    assert status(HEALTHY, restarts=1).endswith(", 1 restart")
    leaving = a_scene(a_rank(0, a_beat(phase="exit")), a_rank(1, a_beat(phase="save")))
    assert status(leaving).endswith(", in save, exiting")
    saving = a_scene(a_rank(0, a_beat(phase="save")), a_rank(1, a_beat()))
    assert status(saving) == "2 ranks, step 1200, 61 ms a step, in save"


def test_before_the_first_step_it_says_who_is_missing() -> None:
    early = a_beat(group_ready=False, steps=0, usual_step=0.0)
    ready = a_beat(steps=0, usual_step=0.0)
    none, some, all_in = (
        a_scene(*(a_rank(n, ready if n in group else early) for n in range(4)))
        for group in ((), (0, 2), range(4))
    )
    assert status(none) == "4 ranks starting for 40 s"
    assert status(some) == "2 of 4 ranks in the group, missing 1,3"
    assert status(all_in) == "4 ranks waiting for the first step for 40 s"
    assert status(a_scene(a_rank(0, None))) == "1 rank starting for 40 s"
    young = msgspec.structs.replace(none, started_at=none.now - 1.9)
    assert status(young) == "", "most starts are over before they are worth a line"


def test_the_dead_are_not_counted_as_alive() -> None:
    dead = Death(code=-9, at=99.0)
    scene = a_scene(a_rank(0, a_beat(), dead), a_rank(1, a_beat()))
    assert status(scene) == "2 ranks, 1 alive, step 1200, 61 ms a step"
    assert status(a_scene(a_rank(0, a_beat(), dead))) == "", "the report follows"
    assert status(a_scene()) == ""


def test_a_paragraph_says_who_where_why_and_what_we_do() -> None:
    verdict = FAULT.verdict(
        "rank 2 stuck 4.1 s in read() at data.py:88",
        ranks=[2],
        victims=[0, 1, 3],
        certain=False,
        fix="look at data.py:88",
        evidence=[Evidence(quote="write() at data.py:90", source="py-spy", rank=2)],
    )
    paragraph = [
        f"notice[HOLD606] rank-stuck: {verdict.reason}",
        "  who       rank 2 (node b, pid 4702); affected: ranks 0-1,3",
        "  --> rank 2: write() at data.py:90 (py-spy)",
        "  action    none, still watching",
        "  evidence  runs/x/attempt-0/evidence-1",
        "  help: look at data.py:88",
    ]
    assert judgement(verdict, HEALTHY, evidence="runs/x/attempt-0/evidence-1") == paragraph
    acted = judgement(verdict, HEALTHY, action="restarting (1 of 3)")
    assert acted[0].startswith("verdict[HOLD606]")
    assert "  action    restarting (1 of 3)" in acted
    for_good = judgement(verdict, HEALTHY, action=verdict.reason)  # a verdict that is fatal
    assert "  action    stopping: no restart can help" in for_good
    assert "\n".join(for_good).count(verdict.reason) == 1
    final = judgement(verdict, HEALTHY, action="stopping", last=True)
    assert not any("help" in line for line in final), "the report has it"


def test_what_the_sentence_says_is_not_said_again() -> None:
    verdict = FAULT.verdict(
        "rank 2 (pid 4702) stuck in read() at data.py:88; ranks 0-1,3 wait in all_reduce #12",
        ranks=[2],
        victims=[0, 1, 3],
        certain=True,
        evidence=[
            Evidence(quote="in read() at data.py:88", source="stack", rank=2),
            Evidence(quote="wait in all_reduce #12", source="flight recorder", rank=0),
            Evidence(quote="rank 0 (pid 4700): stuck in read()", rank=0),
            Evidence(quote="rank 2 (pid 4702): ended by SIGKILL", rank=2),
        ],
    )
    assert judgement(verdict, HEALTHY)[1:] == ["  --> rank 2 (pid 4702): ended by SIGKILL"]


def test_a_wait_that_may_end_by_itself_takes_two_lines() -> None:
    verdict = FAULT.verdict("rank 2 is in save()", ranks=[2], certain=False, fix="look")
    assert judgement(verdict, HEALTHY, name="waiting", evidence="runs/x") == [
        "notice[HOLD606] waiting: rank 2 is in save()",
        "  action    none, still watching; evidence in runs/x",
    ]


def test_a_stalled_job_says_so_and_not_how_fast_it_was() -> None:
    stalled = msgspec.structs.replace(HEALTHY, now=99.9 + 125)
    assert status(stalled, waits_for=[1]) == (
        "4 ranks, stalled at step 1200 for 125 s: waiting for rank 1"
    )
    early = a_scene(*(a_rank(n, a_beat(steps=0, step_at=0.0)) for n in range(2)))
    assert status(early, waits_for=[0, 1]) == (
        "2 ranks, stalled before the first step for 40 s: waiting for ranks 0-1"
    )
    assert status(HEALTHY, waits_for=[1]) == "4 ranks, step 1200, 61 ms a step", "too young"


def test_a_quote_that_begins_with_its_rank_is_not_given_it_again() -> None:
    quotes = ["rank 2 (pid 4702): ended by SIGKILL", "rank 25 waits"]
    seen = [Evidence(quote=quote, rank=2) for quote in quotes]
    told = judgement(FAULT.verdict("x", ranks=[2], certain=True, evidence=seen), HEALTHY)
    assert told[2:] == [
        "  --> rank 2 (pid 4702): ended by SIGKILL",
        "  --> rank 2: rank 25 waits",
    ]


def test_many_culprits_are_compressed() -> None:
    scene = a_scene(*(a_rank(n, a_beat()) for n in range(64)))
    told = judgement(FAULT.verdict("x", ranks=range(63), certain=True), scene)
    assert told[1] == "  who       ranks 0-62"
    assert len(judgement(FAULT.verdict("x", ranks=range(64), certain=True), scene)) == 1
    nobody = judgement(FAULT.verdict("x", ranks=[], certain=True), scene)
    assert nobody == ["verdict[HOLD606] rank-stuck: x"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_pipe_gets_one_status_line_a_minute_and_every_paragraph() -> None:
    stream, clock = io.StringIO(), Clock()
    screen = Screen(stream, clock)
    screen.status("")
    for tenth in range(1300):
        clock.now = tenth / 10
        screen.status(f"step {tenth}")
    screen.say(["one", "two"])
    screen.close()
    assert stream.getvalue() == (
        "holdfast> step 100\nholdfast> step 700\nholdfast> one\nholdfast> two\n"
    )


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIO]]:
    """The reading end of a real terminal, and the stream that writes to it."""
    monkeypatch.setenv("TERM", "xterm")
    near, far = pty.openpty()
    os.set_blocking(near, False)
    with open(far, "w", encoding="utf-8") as stream:
        yield near, stream
    os.close(near)


class Terminal:
    """What stands on the screen; the kernel passes it on piece by piece, a moment later."""

    def __init__(self, near: int) -> None:
        self.near = near
        self.got = b""

    def shows(self, wanted: str) -> None:
        def drawn() -> bool:
            with contextlib.suppress(BlockingIOError):
                self.got += os.read(self.near, 65536)
            return self.draw() == wanted

        wait_for(drawn)

    def draw(self) -> str:
        rows = [""]
        for piece in self.got.decode(errors="replace").replace("\r\n", "\n").split("\r"):
            first, *rest = piece.removeprefix("\033[K").split("\n")
            rows[-1] = first if piece.startswith("\033[K") else rows[-1] + first
            rows += rest
        return "\n".join(rows)


def test_on_a_terminal_the_status_is_rewritten_below_what_stays(
    terminal: tuple[int, TextIO],
) -> None:
    near, stream = terminal
    screen, seen = Screen(stream), Terminal(near)
    screen.status("a long line about step 1")
    seen.shows("holdfast> a long line about step 1")
    screen.status("step 2")
    seen.shows("holdfast> step 2")
    screen.say("something happened")
    screen.status("step 3")
    with screen.aside():
        stream.write("rank 0 says hello\n")
        stream.flush()
    screen.status("step 3")
    stays = "holdfast> something happened\nrank 0 says hello\n"
    seen.shows(f"{stays}holdfast> step 3")
    screen.close()
    seen.shows(stays)


def test_a_status_line_never_wraps(terminal: tuple[int, TextIO]) -> None:
    near, stream = terminal
    Screen(stream).status("x" * 500)
    Terminal(near).shows("holdfast> " + "x" * 69)


def test_the_same_status_is_not_written_again(terminal: tuple[int, TextIO]) -> None:
    near, stream = terminal
    screen, seen = Screen(stream), Terminal(near)
    screen.status("step 1")
    screen.status("step 1")
    stream.write("!")
    stream.flush()
    seen.shows("holdfast> step 1!")
    assert seen.got.count(b"step 1") == 1


@given(st.text(st.characters()))
def test_nothing_foreign_drives_the_terminal(foreign: str) -> None:
    stream = io.StringIO()
    Screen(stream).say([foreign])
    told = stream.getvalue()
    assert told.startswith("holdfast> ")
    assert told.count("\n") == 1
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in told[:-1])


def test_nobody_reading_does_not_stop_the_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_screen, "PATIENCE", 0.05)
    near, far = os.pipe()
    full = fcntl.fcntl(far, fcntl.F_GETPIPE_SZ)
    assert os.write(far, b"x" * full) == full
    with open(far, "w", encoding="utf-8") as stream:
        screen = Screen(stream)
        began = time.monotonic()
        screen.status("step 1")
        screen.say(["one", "two"])
        assert time.monotonic() - began < 10, "a blocking write would last for ever"
        assert os.read(near, full) == b"x" * full
        screen.close()
        assert os.read(near, 65536).decode() == (
            "holdfast> 2 lines could not be shown; the journal has them\n"
        )
    os.close(near)


def test_a_terminal_that_went_away_is_no_error() -> None:
    near, far = os.pipe()
    with open(far, "w", encoding="ascii", errors="replace") as stream:
        screen = Screen(stream)
        screen.say("caf\xe9")
        assert os.read(near, 100) == b"holdfast> caf?\n"
        os.close(near)
        screen.status("x")
        screen.say("x")
        screen.close()
    # Nothing was left in the stream's buffer: closing it did not fail.
    screen.say("after it was closed")
