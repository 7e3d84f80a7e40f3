"""Signals to the launcher: noted, counted by the clock, given back, and passed on to ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from signal import SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2

import pytest

from holdfast.run.launch.launcher_signals import LauncherSignals, receivers

TO_STOP = [SIGTERM, SIGINT, SIGHUP]


@pytest.mark.parametrize(
    ("came", "told", "hurry"),
    [
        ([(SIGTERM, 0.0)], SIGTERM, False),
        ([(SIGTERM, 0.0), (SIGHUP, 0.0)], SIGTERM, False),  # a session that ends
        ([(SIGHUP, 0.0), (SIGTERM, 0.0)], SIGTERM, False),
        ([(SIGHUP, 0.0), (SIGINT, 0.0)], SIGINT, False),
        ([(SIGHUP, 0.0)], SIGHUP, False),
        ([(SIGTERM, 0.0), (SIGTERM, 0.2)], SIGTERM, False),  # by the step and by the batch script
        ([(SIGTERM, 0.0), (SIGTERM, 1.0)], SIGTERM, True),
        ([(SIGINT, 0.0), (SIGINT, 0.01)], SIGINT, False),  # one Ctrl-C, passed on by a wrapper too
        ([(SIGINT, 0.0), (SIGINT, 0.5)], SIGINT, True),
        ([(SIGINT, 0.0), (SIGINT, 0.2), (SIGINT, 0.6)], SIGINT, True),
        ([(SIGTERM, 0.0), (SIGINT, 5.0)], SIGTERM, False),
        ([(SIGTERM, 0.0), (SIGINT, 5.0), (SIGINT, 6.0)], SIGTERM, True),
    ],
)
def test_only_the_same_signal_again_later_means_hurry(
    came: list[tuple[signal.Signals, float]], told: signal.Signals, hurry: bool
) -> None:
    now = [0.0]
    with LauncherSignals(TO_STOP, clock=lambda: now[0]) as orders:
        for number, at in came:
            now[0] = at
            os.kill(os.getpid(), number)
        assert (orders.told, orders.hurry) == (told, hurry)


def test_signals_are_given_back() -> None:
    heard: list[int] = []
    before = signal.signal(SIGUSR1, lambda number, _: heard.append(number))
    try:
        with LauncherSignals([SIGUSR1]) as orders:
            os.kill(os.getpid(), SIGUSR1)
            os.kill(os.getpid(), SIGUSR2)
            assert orders.told == SIGUSR1  # the user's --signals-to-handle has it
            assert orders.for_ranks() == [SIGUSR2]
            assert orders.for_ranks() == []
        assert heard == []
        os.kill(os.getpid(), SIGUSR1)
        assert heard == [SIGUSR1]
    finally:
        signal.signal(SIGUSR1, before)


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(SIGHUP, signal.SIG_IGN)
    try:
        with LauncherSignals(TO_STOP) as orders:
            orders.listen()
            os.kill(os.getpid(), SIGHUP)
            assert orders.told is None
    finally:
        signal.signal(SIGHUP, before)


HANDLES = """
import signal
signal.signal(signal.SIGUSR1, lambda *_: None)
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_only_a_process_that_handles_a_signal_gets_it() -> None:
    """Through a shell that waits for its only child; the default action would end the others."""
    python = [sys.executable, "-c", HANDLES]
    shell = ["sh", "-c", '"$@"; true', "sh", *python]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        for command in (python, shell, ["sh", "-c", "echo ready; exec sleep 600"])
    ]
    try:
        for process in started:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        pids = {rank: process.pid for rank, process in enumerate(started)}
        found = receivers(pids, SIGUSR1)
        assert sorted(found) == [0, 1]
        assert found[0] == pids[0]
        assert found[1] != pids[1]
        assert receivers(pids, SIGUSR2) == {}
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
