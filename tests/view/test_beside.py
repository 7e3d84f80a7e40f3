"""What ranks print and our status line share a terminal, and neither destroys the other."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

import pytest

from holdfast.run.launch.pump import write_all
from holdfast.view.run_screen import ERASE, Screen, Writer
from tests.window import Window, window

GONE = ERASE.encode()


@contextlib.contextmanager
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Window, Screen, int]]:
    """The window, the screen that draws on it, and the descriptor that ranks' bytes go to."""
    monkeypatch.setenv("TERM", "xterm")
    with window() as made, open(os.dup(made.far), "w", encoding="utf-8") as stream:
        yield made, Screen(stream), stream.fileno()


def test_the_status_line_makes_way_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with shared(monkeypatch) as (made, screen, number):
        screen.status("step 1")
        screen.beside(write_all)(number, b"loss 0.5\nloss 0.4\n")
        screen.status("step 2")
        made.shows(b"step 2")
    told = GONE + b"holdfast> step 1" + GONE + b"loss 0.5\nloss 0.4\n" + GONE + b"holdfast> step 2"
    assert made.got == told


def test_a_progress_bar_has_its_line_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with shared(monkeypatch) as (made, screen, number):
        write = screen.beside(write_all)
        for text in (b"\r 10%", b"\r 20%", b"\r100%\n"):
            write(number, text)
            screen.status("step 1")
        made.shows(b"step 1")
    assert made.got == b"\r 10%\r 20%\r100%\n" + GONE + b"holdfast> step 1"


def test_a_paragraph_begins_below_an_unfinished_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Said when something is wrong: readable, and still there when the bar moves on."""
    with shared(monkeypatch) as (made, screen, number):
        write = screen.beside(write_all)
        write(number, b"\r 10%")
        screen.say("rank 2 is stuck")
        write(number, b"\r 20%")
        made.shows(b" 20%")
    assert made.got == b"\r 10%\nholdfast> rank 2 is stuck\n\r 20%"


def test_what_goes_elsewhere_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`holdfast run … > file`: not one byte of ours gets in there, and the line stays."""
    reading, writing = os.pipe()
    with shared(monkeypatch) as (made, screen, _), open(reading, "rb", 0), open(writing, "wb", 0):
        screen.status("step 1")
        screen.beside(write_all)(writing, b"part")
        screen.status("step 2")
        made.shows(b"step 2")
        assert os.read(reading, 100) == b"part"
    assert made.got == GONE + b"holdfast> step 1" + GONE + b"holdfast> step 2"


def test_a_terminal_that_takes_nothing_stops_only_the_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-S: the thread that carries the ranks' output hangs; the one that watches does not."""
    came, let_go = threading.Event(), threading.Event()

    def blocked(_number: int, _text: bytes) -> None:
        came.set()
        assert let_go.wait(30)

    with shared(monkeypatch) as (_, screen, number):
        carrier = in_a_thread(screen.beside(blocked), number)
        assert came.wait(30)
        watcher = threading.Thread(target=screen.status, args=("step 1",))
        watcher.start()
        watcher.join(30)
        assert not watcher.is_alive()
        assert carrier.is_alive()
        let_go.set()
        carrier.join(30)


def in_a_thread(write: Writer, number: int) -> threading.Thread:
    thread = threading.Thread(target=write, args=(number, b"x\n"))
    thread.start()
    return thread


def test_in_a_pipe_a_line_of_ours_is_not_glued_to_a_bar() -> None:
    """`holdfast run … 2>&1 | tee log`: the status line once a minute as well as a paragraph."""
    reading, writing = os.pipe()
    now = [0.0]
    with open(reading, "rb") as log, open(writing, "w", encoding="utf-8") as stream:
        screen = Screen(stream, lambda: now[0])
        both = os.dup(writing)
        write = screen.beside(write_all)
        write(both, b"\r 10%")
        screen.say("rank 2 is stuck")
        write(both, b"\r 20%")
        now[0] = 1e6
        screen.status("step 7")
        write(both, b"\r100%\n")
        screen.say("done")
        os.close(both)
        stream.close()
        assert log.read() == (
            b"\r 10%\nholdfast> rank 2 is stuck\n\r 20%\nholdfast> step 7\n\r100%\nholdfast> done\n"
        )


def test_a_bar_that_goes_elsewhere_is_none_of_our_lines() -> None:
    """`holdfast run … > out`, with stderr in another pipe."""
    reading, writing = os.pipe()
    with (
        open(reading, "rb") as log,
        open(writing, "w", encoding="utf-8") as stream,
        open(os.devnull, "wb") as elsewhere,
    ):
        screen = Screen(stream)
        screen.beside(write_all)(elsewhere.fileno(), b"\r 10%")
        screen.say("rank 2 is stuck")
        stream.close()
        assert log.read() == b"holdfast> rank 2 is stuck\n"
