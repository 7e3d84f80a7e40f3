"""What outlives its rank: real processes in sessions of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.run.launch import orphans, terminate
from holdfast.run.launch.orphans import Descendants
from holdfast.system.proc import handles, row_of
from tests.cli.holdfast_command import wait_until
from tests.places import TARGETS
from tests.run.launching import calls, finish, launched, lives, log

DETACH = str(TARGETS / "detach.py")


def noted(folder: Path) -> list[int]:
    file = folder / "pids"
    return [int(line.split()[1]) for line in file.read_text().splitlines()] if file.exists() else []


@contextlib.contextmanager
def helpers_end(folder: Path) -> Iterator[None]:
    """Whatever the test finds, nothing of it stays on the machine."""
    try:
        yield
    finally:
        for pid in noted(folder):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


@contextlib.contextmanager
def rank(folder: Path) -> Iterator[tuple[Descendants, int]]:
    """A rank of this process, with its helpers up, and its family."""
    settings = {"RANK": "5", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "this"}
    command = [sys.executable, DETACH, str(folder), "wait"]
    with helpers_end(folder), Descendants("this") as family:
        process = subprocess.Popen(command, env={**os.environ, **settings}, start_new_session=True)
        try:
            wait_until(lambda: len(noted(folder)) == 2)
            # Each bears the name of its rank until it has become the program it is to run.
            wait_until(lambda: {"sh", "sleep"} <= _names(family, process.pid))
            yield family, process.pid
        finally:
            terminate._kill_sessions([process.pid])
            process.wait()


def _names(family: Descendants, leader: int) -> set[str]:
    rows = (row_of(member.row.pid) for member in family.members({leader: 5}))
    return {row.name for row in rows if row is not None}


def test_helpers_of_a_rank_are_found_and_ended_after_it(tmp_path: Path) -> None:
    with rank(tmp_path) as (family, leader), subprocess.Popen(["sleep", "600"]) as plain:
        try:
            seen = family.members({leader: 5})
            assert {m.row.pid for m in seen} > set(noted(tmp_path))
            assert {m.rank for m in seen} == {5}
            assert terminate.end([leader], at_once=[leader]) == []
            assert all(lives(pid) for pid in noted(tmp_path))
            ended, left = family.end({leader: 5}, seen)
            assert left == []
            assert {(p.rank, p.name) for p in ended} >= {(5, "sh"), (5, "sleep")}
            assert not any(lives(pid) for pid in noted(tmp_path))
            assert plain.poll() is None
        finally:
            plain.kill()


def test_a_rank_that_was_killed_has_left_its_helpers_to_us(tmp_path: Path) -> None:
    """Nobody looked before it died: descent shows only because orphans come to us."""
    with (
        rank(tmp_path) as (family, leader),
        # as a child of the shell that became the launcher by exec
        subprocess.Popen(["sleep", "600"], start_new_session=True) as former,
    ):
        try:
            os.kill(leader, signal.SIGKILL)
            wait_until(lambda: terminate.exit_code(leader) is not None)
            ended, left = family.end({leader: 5}, [])
            assert left == []
            assert {p.pid for p in ended} >= set(noted(tmp_path))
            assert {p.rank for p in ended} == {5}
            assert not any(lives(pid) for pid in noted(tmp_path))
            assert terminate.exit_code(leader) == -signal.SIGKILL  # still there for its Popen
            assert former.poll() is None
        finally:
            former.kill()


def test_only_the_very_process_that_was_seen_is_ended() -> None:
    """The number was given again: the start time tells."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as stranger:
        try:
            row = row_of(stranger.pid)
            assert row
            former = orphans.Descendant(row._replace(started=row.started - 1), 0)
            assert orphans.end_all([former]) == ([], [])
            orphans._send(former.row, signal.SIGKILL)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_adopted_zombies_are_reaped_and_nobody_elses(tmp_path: Path) -> None:
    program = (
        "import os\n"
        "if os.fork(): os._exit(0)\n"
        "os.setsid()\n"
        "os.close(os.open('pid', os.O_CREAT)); os.rename('pid', f'{os.getpid()}.pid')\n"
        "open('go').read()\n"
    )
    os.mkfifo(tmp_path / "go")
    own = subprocess.Popen(["true"])
    with Descendants("this") as family:
        leader = subprocess.Popen(
            [sys.executable, "-c", program], cwd=tmp_path, start_new_session=True
        )
        wait_until(lambda: terminate.exit_code(leader.pid) == 0)
        wait_until(lambda: any(tmp_path.glob("*.pid")))
        child = int(next(tmp_path.glob("*.pid")).stem)
        (tmp_path / "go").write_text("")
        wait_until(lambda: terminate.exit_code(child) == 0)
        wait_until(lambda: terminate.exit_code(own.pid) == 0)
        family.reap([leader.pid])
        assert row_of(child) is None
        assert (leader.wait(), own.wait()) == (0, 0)
        family.reap(())  # without any child it has nothing to say


@pytest.mark.parametrize("finish_as", ["fail", "well"])
def test_a_failed_attempt_leaves_nobody_and_a_good_end_leaves_them_alone(
    tmp_path: Path, finish_as: str
) -> None:
    plan = ("--nproc-per-node", "2", DETACH, str(tmp_path), finish_as)
    with helpers_end(tmp_path), launched(tmp_path / "run", "stop", *plan) as launcher:
        code, _, err = finish(launcher)
        assert code == (3 if finish_as == "fail" else 0), err
        (call,) = (c for c in calls(tmp_path / "run") if c["what"] == "outlived")
        assert call["ended"] == (finish_as == "fail")
        assert {tuple(name) for name in call["names"]} >= {(0, "sh"), (1, "sh")}
        assert {lives(pid) for pid in noted(tmp_path)} == {finish_as == "well"}
        printing = [pid for pid in noted(tmp_path) if handles(pid, signal.SIGUSR1)]
        assert len(printing) == (2 if finish_as == "well" else 0)
        for line in (1, 2):  # nothing reads the screen for it any more, and that must not end it
            for pid in printing:
                os.kill(pid, signal.SIGUSR1)
            for rank in range(len(printing)):
                said = "still here\n" * line
                wait_until(lambda: log(tmp_path / "run", 0, rank) == said)  # noqa: B023
        assert all(lives(pid) for pid in printing)
