"""`holdfast run --hosts` over real ssh: what reaches the hosts, what comes back, how it ends."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.drill.lab import Host, Lab
from tests.drill.lab.fixture import lab_or_skip
from tests.drill.lab.sshd import SshUser, new_key, serve_ssh
from tests.run.nodes.scenario import TARGET
from tests.run.nodes.slurm_job import launcher_on

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


@contextlib.contextmanager
def start(
    folder: Path, *words: str, before: tuple[str, ...] = (), **variables: str
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "holdfast", "run", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, **variables},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 100
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


@pytest.mark.long
def test_ctrl_c_ends_it_in_order_and_leaves_nothing(cluster: Cluster, job: Path) -> None:
    with start(job, "--hosts", "b", "--no-check", "train.py", "wait") as process:
        until((job / "started").exists)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "[b] KeyboardInterrupt" in err
    assert "[b] holdfast> stopped by Ctrl-C" in err
    until(lambda: not running(cluster.b, str(job)))


@pytest.mark.long
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


def test_two_hosts_train_together(cluster: Cluster, tmp_path: Path) -> None:
    """The whole way: they meet, every rank is in one group, and each sentence is shown once."""
    words = ("--hosts", "a,b", "--env", "OMP_NUM_THREADS=1", str(TARGET), str(tmp_path), "3")
    with start(tmp_path, *words) as process:
        out, err = process.communicate(timeout=180)
    assert process.returncode == 0, f"{out}\n{err}"
    assert " holdfast> done: 3 steps, 0 restarts" in err
    assert err.count(" holdfast> attempt 0: 2 ranks on 2 nodes: a (0), b (1)") == 1, err
    made = {file.name: file.read_text() for file in (tmp_path / "progress").iterdir()}
    assert sorted(made) == ["a.0", "b.1"]
    assert {line.split()[2] for text in made.values() for line in text.splitlines()} == {"2"}
    assert f"which meet at {cluster.a.address}:29500 of a" in err
    names = sorted(path.name for path in (tmp_path / "runs").glob("[0-9]*"))
    assert names[1] in (f"{names[0]}.a", f"{names[0]}.b"), "one run, and the disk is shared"


@pytest.mark.long
def test_a_firewall_is_named_before_anything_starts(cluster: Cluster, job: Path) -> None:
    cluster.a.firewall("tcp dport 29500 drop")
    try:
        with start(job, "--hosts", "a,b", "train.py", "0") as process:
            _, err = process.communicate(timeout=60)
    finally:
        cluster.a.firewall()
    assert process.returncode == 125
    assert "port 29500 of a can be reached by no address from all other hosts" in err
    assert f"b tried {cluster.a.address}: no answer within 2 s" in err


@pytest.mark.long
@pytest.mark.parametrize("way", ["ctrl-c", "stop"])
def test_all_nodes_end_together(cluster: Cluster, tmp_path: Path, way: str) -> None:
    words = ("--hosts", "a,b", "--env", "OMP_NUM_THREADS=1", str(TARGET), str(tmp_path), "100000")
    with start(tmp_path, *words) as process:
        until(lambda: len(list((tmp_path / "progress").glob("*"))) == 2)
        if way == "ctrl-c":
            process.send_signal(signal.SIGINT)
        else:  # by any of its nodes, from another shell
            stop = [sys.executable, "-m", "holdfast", "stop", "latest", "--hosts", "b"]
            done = subprocess.run(
                stop, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False
            )
            assert "b: " in done.stdout, done.stderr
        _, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    assert "node-lost" not in err
    for host in (cluster.a, cluster.b):
        until(functools.partial(_is_over, host, str(tmp_path)))


@pytest.mark.long
def test_a_launcher_that_is_killed_is_started_again(cluster: Cluster, tmp_path: Path) -> None:
    words = ("--hosts", "a,b", "--env", "OMP_NUM_THREADS=1", str(TARGET), str(tmp_path), "100000")
    with start(tmp_path, *words) as process:
        until(lambda: len(_attempts(tmp_path)) == 2 and (tmp_path / "ckpts").exists())
        os.kill(launcher_on(cluster.b), signal.SIGKILL)
        until(lambda: [*_attempts(tmp_path).values()] == [1, 1])
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=90)
    assert process.returncode == 130, err
    assert "the launcher on b was killed by SIGKILL: starting it again (1 of 3)" in err
    assert "node-lost: node b (rank 1) was lost" in err


@pytest.mark.long
def test_under_nohup_the_job_needs_no_starter(cluster: Cluster, tmp_path: Path) -> None:
    words = ("--hosts", "a,b", "--env", "OMP_NUM_THREADS=1", str(TARGET), str(tmp_path), "100000")
    with start(tmp_path, *words, before=("nohup",)) as process:
        until(lambda: len(_attempts(tmp_path)) == 2)
        process.kill()
        process.wait(30)
        files = [*(tmp_path / "progress").iterdir()]
        sizes = [file.stat().st_size for file in files]
        until(
            lambda: all(f.stat().st_size > 3 * size for f, size in zip(files, sizes, strict=True))
        )
    stop = [sys.executable, "-m", "holdfast", "stop", "latest", "--hosts", "a,b"]
    done = subprocess.run(
        stop, cwd=tmp_path, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    for host in (cluster.a, cluster.b):
        until(functools.partial(_is_over, host, str(tmp_path)))


def _attempts(folder: Path) -> dict[str, int]:
    """The newest attempt that each rank has made a step in."""
    found = {}
    for file in (folder / "progress").glob("*"):
        whole = file.read_text().rpartition("\n")[0]
        if whole:
            found[file.name] = int(whole.splitlines()[-1].split()[3])
    return found


def _is_over(host: Host, folder: str) -> bool:
    return not running(host, folder)


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
