"""Ending ranks: all they started, in order, within a deadline, and nobody else's process."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.run.launch import terminate
from holdfast.system import proc
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


def test_a_rank_that_proc_does_not_show_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pid namespace with the /proc of another one its number there is another process."""
    notes = tmp_path / "pids"
    with (
        rank(sys.executable, str(TARGETS / "brood.py"), str(notes)) as deaf,
        rank("sleep", "600") as polite,
    ):
        brood(notes)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(proc, "counts_like_us", lambda _: False)
            assert row_of(deaf.pid) is None
            assert terminate.end([deaf.pid, polite.pid], grace=0.5) == []
        assert terminate.exit_code(deaf.pid) == -signal.SIGKILL
        assert terminate.exit_code(polite.pid) == -signal.SIGTERM


def test_who_is_in_a_hurry_does_not_wait_for_the_grace(tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    with rank(sys.executable, str(TARGETS / "brood.py"), str(notes)) as deaf:
        brood(notes)
        assert terminate.end([deaf.pid], grace=600, hurry=lambda: True) == []
        assert terminate.exit_code(deaf.pid) == -signal.SIGKILL


EXITS_BY_ITSELF = """
import atexit, pathlib, sys, time
def work():
    pathlib.Path(sys.argv[1]).touch()
    while not pathlib.Path(sys.argv[2]).exists():
        time.sleep(0.01)
atexit.register(work)
sys.exit(5)
"""
SAVES_WHEN_ASKED = """
import pathlib, signal, sys, time
def save(*_):
    pathlib.Path(sys.argv[2]).touch()
    sys.exit(6)
signal.signal(signal.SIGTERM, save)
pathlib.Path(sys.argv[1]).touch()
while True:
    signal.pause()
"""


def test_exit_handlers_run_to_their_end_while_the_others_save(tmp_path: Path) -> None:
    """A signal would cut the first one off: what it waits for comes only after the signals."""
    at_work, saved, ready = (tmp_path / name for name in ("at-work", "saved", "ready"))
    with (
        rank(sys.executable, "-c", EXITS_BY_ITSELF, str(at_work), str(saved)) as leaving,
        rank(sys.executable, "-c", SAVES_WHEN_ASKED, str(ready), str(saved)) as asked,
    ):
        wait_until(lambda: at_work.exists() and ready.exists())
        both = [leaving.pid, asked.pid]
        assert terminate.end(both, exiting=lambda: [leaving.pid], grace=60) == []
        assert terminate.exit_code(leaving.pid) == 5
        assert terminate.exit_code(asked.pid) == 6


def test_exit_handlers_without_an_end_have_the_grace_time(tmp_path: Path) -> None:
    at_work, never = tmp_path / "at-work", tmp_path / "never"
    told: list[list[int]] = []
    with (
        rank(sys.executable, "-c", EXITS_BY_ITSELF, str(at_work), str(never)) as leaving,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(terminate, "WAIT_IS_LONG", 0.2)
        wait_until(at_work.exists)
        began = time.monotonic()
        kept = terminate.end(
            [leaving.pid],
            exiting=lambda: [leaving.pid],
            grace=1.0,
            waiting=lambda living, _left: told.append(living),
        )
        assert kept == []
        assert time.monotonic() - began >= 1.0
        assert terminate.exit_code(leaving.pid) == -signal.SIGKILL
        assert told == [[leaving.pid]]


@contextlib.contextmanager
def unkillable(pid: int) -> Iterator[None]:
    """While entered, SIGKILL does not end it: a tracer holds it on its way out. To us that looks
    like a process that hangs inside the kernel."""
    program = (
        "import ctypes, sys, time\n"
        "seize, trace_exit, pid = 0x4206, 0x40, int(sys.argv[1])\n"
        "ptrace = ctypes.CDLL(None).ptrace\n"
        "ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]\n"
        "print(ptrace(seize, pid, 0, trace_exit), flush=True)\n"
        "time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as tracer:
        try:
            assert tracer.stdout
            if tracer.stdout.readline() != "0\n":
                pytest.skip("ptrace is not permitted here")
            yield
        finally:
            tracer.kill()


def test_a_rank_that_hangs_in_the_kernel_does_not_hang_us() -> None:
    with rank("sleep", "600") as stuck, pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminate, "KILL_DEADLINE", 0.5)
        with unkillable(stuck.pid):
            assert terminate.end([stuck.pid], grace=0.2) == [stuck.pid]


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
