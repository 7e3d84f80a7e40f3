"""Whatever is stopped or killed: no rank, and nothing that a rank's wrapper started, outlives the
lease; and nothing else ever ends for it."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from holdfast.nodes.clock_exchange import boot_time
from holdfast.rank import delivery
from holdfast.run.launch.rank_fence import RankFence
from tests.cli.holdfast_command import wait_until
from tests.run.launching import lives

WRAPPER = "sleep 600 & echo $! > $0.new; mv $0.new $0; wait"


class Fenced:
    """A rank that is a shell, and the process that the shell started."""

    def __init__(self, notes: Path, fence: RankFence) -> None:
        self.fence = fence
        command = delivery.command(["bash", "-c", WRAPPER, str(notes)], lease=fence.page)
        self.shell = subprocess.Popen(command, start_new_session=True)
        self.notes = notes

    def hold(self) -> None:
        assert self.fence.hold([self.shell.pid]) == ""
        wait_until(self.notes.exists)
        self.child = int(self.notes.read_text())

    @property
    def guard(self) -> psutil.Process:
        living = [p for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE]
        (found,) = [p for p in living if "lease_guard" in " ".join(p.cmdline())]
        return found

    @property
    def both_are_gone(self) -> bool:
        return self.shell.poll() is not None and not lives(self.child)


@pytest.fixture
def fence() -> Iterator[RankFence]:
    made = RankFence()
    yield made
    made.release()


@pytest.fixture
def fenced(request: pytest.FixtureRequest, fence: RankFence, tmp_path: Path) -> Iterator[Fenced]:
    """With a lease of ten minutes, where the test does not say."""
    fence.extend(boot_time() + getattr(request, "param", 600.0))
    fence.begin()
    made = Fenced(tmp_path / "child", fence)
    try:
        yield made
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(made.shell.pid, signal.SIGKILL)
        made.shell.wait()


def end_in(fence: RankFence, seconds: float) -> None:
    """`extend` never takes back what was given: as a lease that began earlier would be."""
    fence._words[0] = int((boot_time() + seconds) * 1e9)


@pytest.mark.parametrize("fenced", [1.5], indirect=True)
@pytest.mark.parametrize("stopped", ["nothing", "both"])
def test_they_end_with_the_lease_also_while_stopped(fenced: Fenced, stopped: str) -> None:
    """As after `scontrol suspend`: all processes of the job, with whatever watches them."""
    fenced.hold()
    if stopped == "both":
        fenced.guard.suspend()
        os.killpg(fenced.shell.pid, signal.SIGSTOP)
    wait_until(lambda: fenced.both_are_gone)
    assert boot_time() * 1e9 >= fenced.fence._words[0]


def test_a_rank_waits_until_it_is_fenced(fenced: Fenced) -> None:
    time.sleep(0.3)  # it could start in a tenth of that
    assert not fenced.notes.exists()
    fenced.hold()


def test_no_signal_of_a_scheduler_ends_the_guard(fenced: Fenced) -> None:
    """SIGTERM to all processes of a job leaves its ranks the time to save."""
    fenced.hold()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGTSTP):
        fenced.guard.send_signal(number)
    time.sleep(0.3)
    assert fenced.guard.status() in (psutil.STATUS_SLEEPING, psutil.STATUS_RUNNING)
    assert fenced.shell.poll() is None


def test_a_guard_that_is_killed_takes_them_along(fenced: Fenced) -> None:
    """A rank that nothing watches any more could outlive the lease."""
    fenced.hold()
    fenced.guard.kill()
    wait_until(lambda: fenced.both_are_gone)


def test_a_lease_that_was_over_before_they_began(fenced: Fenced) -> None:
    guard = fenced.guard
    end_in(fenced.fence, 0.0)
    wait_until(lambda: guard.status() == psutil.STATUS_ZOMBIE)
    fenced.fence.hold([fenced.shell.pid])
    assert fenced.shell.wait(60) == -signal.SIGKILL
    assert not fenced.notes.exists()


def test_what_is_released_lives_on(fenced: Fenced) -> None:
    fenced.hold()
    fenced.fence.release()
    time.sleep(0.3)
    assert fenced.shell.poll() is None
    assert lives(fenced.child)


def test_a_job_that_is_over_has_all_the_time(fenced: Fenced) -> None:
    fenced.hold()
    end_in(fenced.fence, 0.5)
    fenced.fence.lift()
    fenced.fence.extend(boot_time() + 0.1)  # the link hears on for a moment
    time.sleep(1.2)
    assert fenced.shell.poll() is None


LAUNCHER = """
import pathlib, sys, time
from holdfast.run.launch.rank_fence import RankFence
from tests.run.launch.test_rank_fence import Fenced, boot_time
fence = RankFence()
fence.extend(boot_time() + 600)
fence.begin()
rank = Fenced(pathlib.Path(sys.argv[1]), fence)
rank.hold()
fence.extend(boot_time() + float(sys.argv[2]))
print(rank.shell.pid, rank.guard.pid, flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def launcher_of(notes: Path, lease: float) -> Iterator[tuple[subprocess.Popen[str], int, int, int]]:
    """A launcher, its rank, what that started, and the guard."""
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(notes), str(lease)], stdout=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert launcher.stdout is not None
        shell, guard = map(int, launcher.stdout.readline().split())
        yield launcher, shell, int(notes.read_text()), guard
    finally:
        launcher.kill()
        launcher.communicate()


@pytest.mark.parametrize(
    ("how", "lease"),
    [
        pytest.param(signal.SIGKILL, 1.0, id="killed"),
        pytest.param(signal.SIGSTOP, 1.0, id="stopped"),
        pytest.param(
            signal.SIGKILL, math.inf, id="killed, with a lease for its life",
            marks=pytest.mark.long,
        ),
    ],
)  # fmt: skip
def test_a_launcher_that_is_killed_or_stopped(
    tmp_path: Path, how: signal.Signals, lease: float
) -> None:
    """PDEATHSIG ends the shell of a launcher that is killed, not what the shell started."""
    with launcher_of(tmp_path / "child", lease) as (launcher, *processes):
        launcher.send_signal(how)
        wait_until(lambda: not any(map(lives, processes)))
