"""Launches leave nothing behind, and the tool that says so would see it if they did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.run.launch.orphans import Descendants
from holdfast.run.runs import leftovers
from tests.cli.holdfast_command import free_port, listener, wait_until
from tools import launches
from tools.leaks import Look, shm_entries, unheld

ROOT = Path(__file__).parent.parent


@pytest.mark.long
def test_three_launches_leave_nothing_behind(tmp_path: Path) -> None:
    """One ends well, in one a rank is killed, in one the launcher."""
    command = [sys.executable, "-m", "tools.launches", "3", "--kill-every", "3"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (report,) = tmp_path.glob("launches-*.md")
    assert "3 of 3 launches left nothing behind" in report.read_text()
    assert all(f"{word} |" in report.read_text() for word in launches.WORDS.values())


def test_each_kind_comes_in_its_turn() -> None:
    kinds = [launches.ending_of(number, 10) for number in range(1, 201)]
    assert kinds[:10] == ["well", "kill", "well"] * 3 + ["wait"]
    assert kinds.count("wait") == 20
    assert kinds.count("kill") > 50


def test_what_is_left_is_seen(tmp_path: Path) -> None:
    temporary, runs = tmp_path / "tmp", tmp_path / "runs"
    temporary.mkdir()
    program = "import os, sys; os.fork() and os._exit(0); os.setsid(); print(os.getpid()); "
    program += "sys.stdout.flush(); os.close(1); os.read(0, 1)"
    port = free_port()
    with Descendants(""):
        look = Look(runs, temporary)
        marked = {**os.environ, leftovers.RUN: f"{runs}/one"}
        children = [
            subprocess.Popen(
                [sys.executable, "-c", program], env=environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
            )
            for environment in (marked, {"PATH": ""})
        ]  # fmt: skip
        left = [int(child.stdout.readline()) for child in children if child.stdout]
        try:
            wait_until(lambda: {row.pid for row in look.processes()} == set(left))
            (temporary / "holdfast-1-x").mkdir()
            with listener(port):
                found = look.leaks([port])
            assert [f"(pid {pid})" in " ".join(found.processes) for pid in left] == [True, True]
            assert (found.ports, found.folders) == ([str(port)], ["holdfast-1-x"])
        finally:
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            for child in children:
                child.communicate()
        wait_until(lambda: look.processes() == [])


def test_shared_memory_in_use_is_no_leak() -> None:
    path = f"/dev/shm/holdfast-test-{os.getpid()}"
    before = shm_entries()
    try:
        with open(path, "w") as file:
            assert path in shm_entries() - before
            assert unheld([path]) == []
            assert file.fileno() > 0
        assert unheld([path]) == [path]
    finally:
        os.unlink(path)
    assert unheld([path]) == []
