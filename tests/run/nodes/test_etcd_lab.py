"""Trainings on lab hosts that meet in a real etcd: the coordinator's host goes, the job stays."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.lab import Host
from tests.lab.etcd import Etcd
from tests.lab.fixture import lab_or_skip
from tests.run.nodes.scenario import NodesJob, named_hosts

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("etcd-lab")]


class EtcdJob(NamedTuple):
    job: NodesJob
    etcd: Etcd

    def coordinator(self) -> Host:
        """By its own word."""
        return next(host for host in self.job.hosts if self.says(host, "this node coordinates"))

    def says(self, host: Host, words: str, *, seconds: float = 0.0) -> bool:
        until = time.monotonic() + seconds
        while True:
            if any(words in line.text for line in [*self.job.screens[host.name]]):
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(0.1)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., EtcdJob]]:
    with lab_or_skip() as lab:
        made: list[Etcd] = []

        def begin(count: int, *, nnodes: str, members: int = 1, steps: int = 100_000) -> EtcdJob:
            hosts = named_hosts(lab, count)
            servers = [lab.host(f"etcd{number}") for number in range(members)]
            folder = tmp_path / "etcd"
            folder.mkdir()
            etcd = Etcd(folder, hosts=servers, lab=lab)
            etcd.__enter__()
            made.append(etcd)
            job = NodesJob(
                lab, hosts, tmp_path / "job", nnodes=nnodes, steps=steps, typed=_meet_in(etcd)
            )
            job.start_all()
            return EtcdJob(job, etcd)

        yield begin
        for one in made:
            one.__exit__(None, None, None)


def _meet_in(etcd: Etcd) -> Callable[[Sequence[Host], Host], list[str]]:
    def typed(hosts: Sequence[Host], host: Host) -> list[str]:
        del hosts, host
        return ["--rdzv-backend", "etcd", "--rdzv-endpoint", etcd.endpoint, "--rdzv-id", "lab",
                "--max-restarts", "3", "--rdzv-conf", "last_call_timeout=20"]  # fmt: skip

    return typed


@pytest.mark.long
def test_the_coordinators_host_is_cut_off_and_the_others_go_on(
    start: Callable[..., EtcdJob],
) -> None:
    both = start(3, nnodes="2:3")
    job = both.job
    job.wait_for_steps(30)
    gone = both.coordinator()
    job.mark()
    gone.cut()
    step = job.goes_on(world=2, seconds=60)
    assert step is not None, job.screen()
    assert not job.ranks_on(gone), "the ranks on the host that was cut off live on"
    assert not job.curve_breaks()
    gone.restore()
    job.mark()
    step = job.goes_on(world=3, seconds=150)
    assert step is not None, job.screen()
    assert not job.curve_breaks()
