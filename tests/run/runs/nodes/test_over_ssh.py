"""`holdfast runs|stop|bundle --hosts` over real ssh, on hosts whose run folders are their own."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.drill.lab import Host, Lab
from tests.drill.lab.fixture import lab_or_skip
from tests.drill.lab.sshd import SshUser, serve_ssh
from tests.places import ROOT
from tests.run.runs_on_disk import LAUNCHER

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("runs-ssh")]

RUNS = "/run/jobs/my runs"
SECRET = "correct-horse-battery"


class Cluster(NamedTuple):
    lab: Lab
    a: Host
    b: Host

    def launch(self, host: Host, *part: str) -> tuple[str, subprocess.Popen[str]]:
        """A launcher that does nothing but live, and the name of its folder."""
        process = self.lab.start(
            host,
            [sys.executable, "-c", LAUNCHER, RUNS, "polite", *part],
            env={"WANDB_API_KEY": SECRET},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        return process.stdout.readline().strip(), process


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with lab_or_skip() as lab:
        user = SshUser(tmp_path_factory.mktemp("ssh"))
        a, b = lab.hosts(2)
        for host in (a, b):
            serve_ssh(lab, host, user)
        with a.inside(), user.in_path():
            yield Cluster(lab, a, b)


def holdfast(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *words, "--runs", RUNS],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        check=False,
    )


def test_runs_are_listed_packed_and_ended_on_all_nodes(cluster: Cluster, tmp_path: Path) -> None:
    run, first = cluster.launch(cluster.a, "a")
    same, second = cluster.launch(cluster.b, "b", run)
    assert same == run
    for host, rank in ((cluster.a, 0), (cluster.b, 1)):
        log = host.path(f"{RUNS}/{run}/attempt-0/rank-{rank}/stdout.log")
        log.parent.mkdir(parents=True)
        log.write_text(f"rank {rank}: key {SECRET}\n")

    listed = holdfast("runs", "--hosts", f"{cluster.a.name},{cluster.b.name}", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    head, row = listed.stdout.splitlines()
    assert head.split()[-1] == "NODES"
    assert [row.split()[0], row.split()[1], row.split()[-1]] == [run, "running", "2"]

    packed = holdfast("bundle", run[:-2], "--hosts", "a,b,nowhere", "-o", "b.tgz", cwd=tmp_path)
    assert packed.returncode == 1, packed.stderr
    assert "nowhere: its name does not resolve here" in packed.stderr
    with tarfile.open(tmp_path / "b.tgz") as archive:
        names = archive.getnames()
        texts = [file.read() for name in names if (file := archive.extractfile(name))]
    assert {f"{run}/a/attempt-0/rank-0/stdout.log", f"{run}/b/attempt-0/rank-1/stdout.log"} < {
        *names
    }
    assert f"{run}/BUNDLE.txt" in names
    assert SECRET.encode() not in b"".join(texts)

    stopped = holdfast("stop", "latest", "--hosts", "a,b", "--json", cwd=tmp_path)
    assert stopped.returncode == 0, stopped.stderr
    said = json.loads(stopped.stdout)["said"]
    assert said == {"a": f"{run} stopped", "b": f"{run} stopped"}
    assert (first.wait(20), second.wait(20)) == (-2, -2)

    again = holdfast("stop", run, "--hosts", "a,b", cwd=tmp_path)
    assert again.stdout == f"{run} is not running on any machine that answered\n"
    listed = holdfast("runs", "--hosts", "a,b", "--json", cwd=tmp_path)
    states = {one["machine"]: one["state"] for one in json.loads(listed.stdout)["runs"]}
    assert states == {"a": "lost", "b": "lost"}


def test_what_cannot_be_is_one_sentence(cluster: Cluster, tmp_path: Path) -> None:
    nothing = holdfast("stop", "nothing", "--hosts", "b", cwd=tmp_path)
    assert nothing.returncode == 2
    assert "error: no run" in nothing.stderr
    assert f" in {RUNS}" in nothing.stderr
    both = holdfast("runs", "--hosts", "a", "--hostfile", "x", cwd=tmp_path)
    assert (both.returncode, both.stderr) == (
        2,
        "error: give either --hosts or --hostfile, not both\n",
    )
