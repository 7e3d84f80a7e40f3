"""A rank behind a terminal: it sees one, its bytes stay as they are, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.run.launch.pump import OutputPump, RankStream
from tests.cli.holdfast_command import in_a_namespace, wait_until
from tests.run.launch.test_logs import TEXT, Screen, pump, rank_log
from tests.run.launching import lives
from tests.window import Window, window

RANK = r"""
import os
def controlling(pid):
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[4]
size = tuple(os.get_terminal_size(1)) if os.isatty(1) else "no terminal"
print(size, controlling("self"), controlling(os.getppid()))
"""
LAUNCHER = """
import subprocess, sys
from holdfast.run.launch.pump import OutputPump, RankStream
from holdfast.rank import delivery
pump = OutputPump()
with open(pump.open(RankStream("rank 0", screen=1), like=1), "w") as end:
    pump.started()
    rank = delivery.command([sys.executable, "-I", "-S", "-c", sys.argv[1]])
    subprocess.run(rank, stdout=end, start_new_session=True, check=True)
pump.close()
"""


@pytest.fixture
def at() -> Iterator[Window]:
    """What a user sits at."""
    with window(rows=30, columns=100) as made:
        yield made


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def in_a_session(*before: str, stdout: int) -> None:
    """As a service or a container's first process starts us: no terminal is ours yet."""
    subprocess.run(
        [*before, sys.executable, "-c", LAUNCHER, RANK],
        stdout=stdout, start_new_session=True, check=True, timeout=60,
    )  # fmt: skip


def test_a_rank_sees_a_terminal_that_controls_neither_it_nor_us(at: Window) -> None:
    in_a_session(stdout=at.far)
    at.shows(b"(100, 30) 0 0\n")


@pytest.mark.lab
def test_without_terminals_to_give_a_pipe_does(at: Window) -> None:
    """A container may have no /dev/pts: better an ugly progress bar than no training."""
    hidden = in_a_namespace("mount", setup="mount -t tmpfs none /dev")
    in_a_session(*hidden, stdout=at.far)
    at.shows(b"no terminal 0 0\n")


def test_bytes_pass_unchanged_to_screen_and_file(at: Window, tmp_path: Path) -> None:
    """Neither \n to \r\n, nor tabs, nor an end of file at ^D, nor ^C, ^S, ^V."""
    screen, path = Screen(), tmp_path / "stdout.log"
    every = bytes(range(256)) + TEXT + b"no end"
    with rank_log(path) as log, pump(screen) as made:
        stream = RankStream("rank 0", screen=1, log=log)
        with open(made.open(stream, like=at.far), "wb", buffering=0) as rank:
            made.started()
            rank.write(every)
        wait_until(lambda: screen.written[1] == every)
    assert path.read_bytes() == every


def test_settle_waits_for_what_the_kernel_still_carries(at: Window) -> None:
    """A worker of the kernel brings it from one end to the other, some time after write()."""
    screen, expected = Screen(), b""
    with pump(screen) as made:
        stream = RankStream("rank 0", screen=1)
        with open(made.open(stream, like=at.far), "wb", buffering=0) as rank:
            for number in range(300):
                rank.write(b"line %d" % number)
                expected += b"line %d" % number
                made.settle(seconds=30)
                assert screen.written[1] == expected


def test_much_output_comes_through_whole(at: Window) -> None:
    """More than the kernel keeps for a terminal, so that the writer has to wait for us."""
    screen, much = Screen(), b"x" * 99 + b"\n"
    with pump(screen) as made:
        with open(made.open(RankStream("r", screen=1), like=at.far), "wb", buffering=0) as rank:
            for _ in range(3000):
                rank.write(much)
        made.settle(seconds=30)
    assert screen.written[1] == much * 3000


def test_the_size_follows_our_window(at: Window) -> None:
    before = signal.getsignal(signal.SIGWINCH)
    with pump(Screen()) as made:
        paths = [made.open(RankStream("r", screen=1), like=at.far) for _ in range(2)]
        with open(paths[0], "wb") as one, open(paths[1], "wb") as other:
            ends = [one.fileno(), other.fileno()]
            assert [os.get_terminal_size(end) for end in ends] == [(100, 30)] * 2
            at.resize(50, 200)
            os.kill(os.getpid(), signal.SIGWINCH)
            wait_until(lambda: [os.get_terminal_size(end) for end in ends] == [(200, 50)] * 2)
    assert signal.getsignal(signal.SIGWINCH) == before


def test_ranks_that_die_leave_no_open_file(at: Window) -> None:
    """Attempt after attempt: the end of the last writer is the end of the stream."""
    screen = Screen()
    before = open_files()
    with pump(screen) as made:
        idle = open_files()
        for attempt in range(3):
            ends = [made.open(RankStream("rank", screen=n), like=at.far) for n in (1, 2)]
            with open(ends[0], "wb") as out, open(ends[1], "wb") as err:
                rank = subprocess.Popen(["sh", "-c", "printf part; kill -9 $$"], stdout=out,
                                        stderr=err, start_new_session=True)  # fmt: skip
                made.started()
            assert rank.wait(30) == -signal.SIGKILL
            wait_until(lambda: open_files() == idle)
            assert screen.written[1] == b"part" * (attempt + 1)
    assert open_files() == before


def test_a_launcher_killed_takes_its_ranks_along(at: Window) -> None:
    """One that ignores the hang-up, and never writes: only the kernel can tell it."""
    waits = "import os, signal; signal.signal(1, signal.SIG_IGN)\nprint(os.getpid(), flush=True)\n"
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, f"{waits}signal.pause()"],
        stdout=at.far, start_new_session=True,
    )  # fmt: skip
    try:
        at.shows(b"\n")
        rank = int(at.got)
        assert lives(rank)
    finally:
        launcher.kill()
        launcher.wait(30)
    wait_until(lambda: not lives(rank))


def test_a_launcher_that_is_gone_hangs_nobody_up(at: Window) -> None:
    """What a rank left running gets an error when it writes, and no SIGHUP, nor blocks."""
    made = OutputPump(write=Screen().write)
    script = "trap 'exit 99' HUP; read go; echo late || exit 7"
    with open(made.open(RankStream("r", screen=1), like=at.far), "wb") as end:
        left = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=end,
                                stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    made.close()
    left.communicate(b"go\n", timeout=30)
    assert left.returncode == 7
