"""`holdfast run --hosts` over real ssh: what reaches the hosts, what comes back, how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.lab import Host, Lab
from tests.lab.fixture import lab_or_skip
from tests.lab.sshd import SshUser, new_key, serve_ssh

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("run-ssh")]

SCRIPT = """
import os, signal, sys, time
print("hello from", os.uname().nodename, os.getcwd(), os.environ.get("MINE"), sys.argv[1:],
      "HOLDFAST_TOKEN" in os.environ, flush=True)
if sys.argv[1] == "wait":
    open("started", "w").close()
    time.sleep(600)
sys.exit(int(sys.argv[1]))
"""


class Cluster(NamedTuple):
    lab: Lab
    a: Host
    b: Host
    user: SshUser


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lab_or_skip() as lab:
        folder = tmp_path_factory.mktemp("ssh")
        user = SshUser(folder)
        a, b, locked = lab.host("a"), lab.host("b"), lab.host("locked")
        for host in (a, b):
            serve_ssh(lab, host, user)
        serve_ssh(lab, locked, user, key=new_key(folder / "other"))
        with a.inside(), user.in_path():
            yield Cluster(lab, a, b, user)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def start(folder: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", "run", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **variables},
    )


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_runs_in_the_same_folder_with_the_variables_that_were_named(
    cluster: Cluster, job: Path
) -> None:
    words = ("--hosts", "b", "--no-check", "--env", "MINE", "--env", "A=1", "train.py", "3", "a b")
    with start(job, *words, MINE="a'b $HOME") as process:
        out, err = process.communicate(timeout=120)
    assert f"[b] hello from b {job} a'b $HOME ['3', 'a b'] False\n" in out
    assert process.returncode == 3, err
    assert "[b] holdfast> " in err


def test_ctrl_c_ends_it_in_order_and_leaves_nothing(cluster: Cluster, job: Path) -> None:
    with start(job, "--hosts", "b", "--no-check", "train.py", "wait") as process:
        until((job / "started").exists)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "[b] KeyboardInterrupt" in err
    assert "[b] holdfast> stopped by Ctrl-C" in err
    until(lambda: not running(cluster.b, str(job)))


def test_a_driver_that_is_killed_takes_the_job_with_it(cluster: Cluster, job: Path) -> None:
    with start(job, "--hosts", "b", "--no-check", "train.py", "wait") as process:
        until((job / "started").exists)
        assert running(cluster.b, str(job))
        process.kill()
        process.communicate(timeout=60)
    until(lambda: not running(cluster.b, str(job)))


@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["--hosts", "b,locked"], "1 of 2 hosts cannot be used, nothing was started. locked: it a",
         "ssh -v locked true"),
        (["--hosts", "nowhere"], "nowhere: its name does not resolve here", "getent hosts nowhere"),
        (["--hosts", "b", "--remote-python", "/no/python"], "b: there is no holdfast on it",
         "install holdfast there"),
        (["--hosts", "b", "--node-rank", "1"], "--node-rank does not go with --hosts", ""),
    ],
)  # fmt: skip
def test_what_keeps_it_from_starting_is_said_in_seconds(
    cluster: Cluster, job: Path, words: list[str], said: str, hint: str
) -> None:
    with start(job, *words, "train.py", "0") as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (125 if hint else 2, "")
    assert said in err
    assert hint in err
    assert "Traceback" not in err


def test_a_folder_that_is_only_here_is_named(cluster: Cluster) -> None:
    here = Path("/run/only-here")
    here.mkdir(exist_ok=True)
    try:
        with start(here, "--hosts", "b", "train.py", "0") as process:
            _, err = process.communicate(timeout=60)
    finally:
        here.rmdir()
    assert process.returncode == 125
    assert err.startswith("error: b: no folder /run/only-here, from which the job is started here")


def running(host: Host, folder: str) -> list[str]:
    """Processes of the host that work in this folder."""
    return [
        link.parent.name for link in host.path("/proc").glob("[0-9]*/cwd") if _to(link) == folder
    ]


def _to(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:  # it has ended meanwhile
        return ""
