"""Ending ranks: all they started, in order, within a deadline, and nobody else's process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.run.launch import terminate
from holdfast.system.proc import row_of
from tests.cli.holdfast_command import wait_until
from tests.places import TARGETS
from tests.run.launching import lives


@contextlib.contextmanager
def rank(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """As torch starts one: the leader of a session of its own."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield process
    finally:
        terminate._kill_sessions([process.pid])
        process.wait()


def brood(notes: Path) -> list[int]:
    wait_until(lambda: notes.exists() and notes.read_text().count("\n") == 2)
    return [int(line) for line in notes.read_text().split()]


def test_a_session_goes_whole_after_its_grace(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    with (
        rank(sys.executable, str(TARGETS / "brood.py"), str(notes)) as deaf,
        rank("sleep", "600") as bystander,
    ):
        family = brood(notes)
        began = time.monotonic()
        assert terminate.end([deaf.pid], grace=0.5) == []
        assert 0.5 <= time.monotonic() - began < 5
        assert not any(lives(pid) for pid in family)
        assert terminate.exit_code(deaf.pid) == -signal.SIGKILL
        assert terminate.exit_code(bystander.pid) is None


def test_culprits_get_no_grace_and_the_others_need_none(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    with (
        rank(sys.executable, str(TARGETS / "brood.py"), str(notes)) as deaf,
        rank("sleep", "600") as polite,
    ):
        brood(notes)
        began = time.monotonic()
        assert terminate.end([deaf.pid, polite.pid], at_once=[deaf.pid], grace=60) == []
        assert time.monotonic() - began < 10
        assert terminate.exit_code(deaf.pid) == -signal.SIGKILL
        assert terminate.exit_code(polite.pid) == -signal.SIGTERM


def test_a_stopped_rank_can_still_end_itself() -> None:
    """torch waits 30 s for one, then kills it: it never gets to run its handler."""
    program = (
        "import signal, sys, os\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "os.kill(os.getpid(), signal.SIGSTOP)\n"
        "while True: signal.pause()\n"
    )
    with rank(sys.executable, "-c", program) as stopped:
        wait_until(lambda: (row := row_of(stopped.pid)) is not None and row.state == "T")
        began = time.monotonic()
        assert terminate.end([stopped.pid], grace=60) == []
        assert time.monotonic() - began < 30
        assert terminate.exit_code(stopped.pid) == 9


def test_who_is_in_a_hurry_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    with rank(sys.executable, str(TARGETS / "brood.py"), str(notes)) as deaf:
        brood(notes)
        assert terminate.end([deaf.pid], grace=600, hurry=lambda: True) == []
        assert terminate.exit_code(deaf.pid) == -signal.SIGKILL


def test_the_exit_code_is_read_without_reaping() -> None:
    with rank("sh", "-c", "exit 3") as process:
        wait_until(lambda: terminate.exit_code(process.pid) is not None)
        assert terminate.exit_code(process.pid) == 3
        assert process.wait() == 3
        with pytest.raises(ChildProcessError):
            terminate.exit_code(process.pid)


def test_a_rank_lives_on_without_its_main_thread() -> None:
    """/proc calls it a zombie; its other thread still works, and must be ended."""
    program = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    with rank(sys.executable, "-c", program) as headless:
        wait_until(lambda: (row := row_of(headless.pid)) is not None and row.state == "Z")
        assert terminate.exit_code(headless.pid) is None
        assert terminate.end([headless.pid], grace=30) == []
        assert terminate.exit_code(headless.pid) == -signal.SIGTERM


def test_strays_are_our_own_session_leaders_only() -> None:
    with (
        rank("sleep", "600") as known,
        rank("sleep", "600") as unknown,
        subprocess.Popen(["sleep", "600"]) as plain,
    ):
        try:
            before = set(terminate.strays(())) - {known.pid, unknown.pid}
            assert terminate.strays({known.pid, *before}) == [unknown.pid]
        finally:
            plain.kill()


def test_signals_are_noted_and_given_back() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        with terminate.StopSignals([signal.SIGUSR1]) as orders:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert (orders.told, orders.hurry) == (signal.SIGUSR1, False)
            os.kill(os.getpid(), signal.SIGUSR1)
            assert orders.hurry is True
        assert heard == []
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        with terminate.StopSignals([signal.SIGUSR1]) as orders:
            orders.listen()
            os.kill(os.getpid(), signal.SIGUSR1)
            assert orders.told is None
    finally:
        signal.signal(signal.SIGUSR1, before)
