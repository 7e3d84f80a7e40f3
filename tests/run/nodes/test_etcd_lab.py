"""Trainings on lab hosts that meet in a real etcd: the coordinator's host goes, the job stays."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.drill.lab import Host
from tests.drill.lab.etcd import Etcd
from tests.drill.lab.fixture import lab_or_skip
from tests.run.nodes.scenario import NodesJob, named_hosts

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("etcd-lab")]


class EtcdJob(NamedTuple):
    job: NodesJob
    etcd: Etcd
    servers: list[Host]

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

        def begin(
            count: int, *, nnodes: str, members: int = 1, steps: int = 100_000, spares: int = 0
        ) -> EtcdJob:
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
            for host in hosts[: count - spares]:
                job.start(host)
            return EtcdJob(job, etcd, servers)

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


@pytest.mark.long
def test_a_spare_begins_no_second_job_while_the_coordinator_cannot_reach_etcd(
    start: Callable[..., EtcdJob],
) -> None:
    both = start(3, nnodes="1:3", spares=1)
    job = both.job
    both.says(job.hosts[0], "attempt 0: 2 ranks", seconds=60)
    job.wait_for_steps(30)
    job.mark()
    spare = job.hosts[2]
    job.lab.partition([both.coordinator()], both.servers)  # the members hear each other
    time.sleep(10)  # its lease is over
    job.start(spare)
    assert both.says(spare, "etcd does not hear the coordinator", seconds=30), job.screen()
    time.sleep(35)  # longer than etcd keeps a job that no node keeps
    assert not job.ranks_on(spare), job.screen()
    job.lab.restore()
    assert both.says(spare, "joined", seconds=30), job.screen()
    newest = job.newest()
    assert newest is not None
    assert not [job.sentences(host) for host in job.hosts if job.sentences(host)]


@pytest.mark.long
def test_etcd_may_lose_its_leader_or_restart_and_the_job_notices_nothing(
    start: Callable[..., EtcdJob],
) -> None:
    both = start(2, nnodes="1:2", members=3)
    job = both.job
    job.wait_for_steps(30)
    job.mark()
    leader = both.etcd.leader()
    leader.kill()
    time.sleep(12)  # longer than a lease, and than etcd's own election
    leader.start()
    for member in both.etcd.members:
        if member is not leader:
            member.stop()
    time.sleep(12)  # no majority: nobody can be elected, nothing can be renewed
    for member in both.etcd.members:
        if member is not leader:
            member.go_on()
    for host in job.hosts:
        assert both.says(host, "etcd answers again", seconds=30), job.screen()
    newest = job.newest()
    assert newest is not None
    assert newest.attempt == 0, job.screen()
    job.wait_for_steps(newest.step + 20, seconds=30)
    assert not [job.sentences(host) for host in job.hosts if job.sentences(host)]


@pytest.mark.long
def test_a_killed_coordinator_is_replaced_and_a_partition_leaves_one_group(
    start: Callable[..., EtcdJob],
) -> None:
    both = start(3, nnodes="1:3")
    job = both.job
    job.wait_for_steps(30)
    first = both.coordinator()
    job.mark()
    job.kill_launcher(first)
    assert job.goes_on(world=2, seconds=60), job.screen()
    assert not job.left_on(first)
    left = [host for host in job.hosts if host is not first]
    second = next(host for host in left if both.says(host, "this node coordinates"))
    other = next(host for host in left if host is not second)
    job.mark()
    job.lab.partition([second], [other, *both.servers])  # its own ranks cannot reach etcd's side
    step = job.goes_on(world=1, seconds=60)
    assert step is not None, job.screen()
    assert not job.ranks_on(second), job.screen()
    assert len(job.ranks_on(other)) == 1
    job.lab.restore()
    assert both.says(second, f"joined {other.name}", seconds=30), job.screen()
    assert not job.curve_breaks()


@pytest.mark.long
def test_the_end_of_the_job_is_the_end_on_all_nodes(start: Callable[..., EtcdJob]) -> None:
    both = start(2, nnodes="1:2", steps=60)
    assert both.job.exits(120) == {"alpha": 0, "bravo": 0}, both.job.screen()
    assert not both.job.orphans(both.job.hosts)


@pytest.mark.long
def test_a_coordinator_that_is_told_to_stop_hands_over(start: Callable[..., EtcdJob]) -> None:
    both = start(2, nnodes="1:2")
    job = both.job
    job.wait_for_steps(30)
    gone = both.coordinator()
    other = next(host for host in job.hosts if host is not gone)
    job.mark()
    job.send(gone, signal.SIGTERM)
    assert job.goes_on(world=1, seconds=60), job.screen()
    assert job.exits(30, [gone]) == {gone.name: 143}
    assert both.says(other, "this node coordinates")
    assert not job.curve_breaks()
