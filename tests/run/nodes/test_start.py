"""`holdfast run` on two lab hosts: it starts, or every node says why not."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.drill.lab import Host, LabUnavailableError
from tests.drill.lab.fixture import lab_or_skip
from tests.run.nodes.scenario import PORT, NodesJob, named_hosts
from tests.run.nodes.start_rows import LONGEST, ROWS, StartRow, play_start

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("start-lab")]

PATIENT = LONGEST["holdfast"]
"""seconds for a sentence here: a test machine has two cores for all hosts"""


@pytest.mark.long
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_it_starts_or_every_node_says_why_not(row: StartRow, tmp_path: Path) -> None:
    try:
        seen = play_start(dataclasses.replace(row, within=PATIENT), tmp_path)
    except LabUnavailableError as problem:
        pytest.skip(str(problem))
    assert not seen.problems, f"{seen.problems}\n{seen.screen}"


def endpoint(hosts: Sequence[Host], *more: str) -> list[str]:
    return ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{hosts[0].address}:{PORT}", *more]


def says(job: NodesJob, host: Host, pattern: str) -> None:
    def said() -> bool:
        return any(re.search(pattern, line.text) for line in [*job.screens[host.name]])

    end = time.monotonic() + PATIENT
    while not said() and time.monotonic() < end:
        time.sleep(0.1)
    assert said(), f"{pattern!r} is not said on {host.name}\n{job.screen(last=60)}"


def test_other_settings_on_one_node_are_named_on_all_of_them(tmp_path: Path) -> None:
    with lab_or_skip() as lab:
        hosts = named_hosts(lab, 2)
        with NodesJob(lab, hosts, tmp_path) as job:
            job.start(hosts[0])
            job.start(hosts[1], ["env", "NCCL_ALGO=Ring", *job.command(hosts[1])])
            for host in hosts:
                says(job, host, "not started: env-mismatch-nodes: NCCL_ALGO is Ring on bravo")
            assert set(job.exits(PATIENT).values()) == {1}


@pytest.mark.parametrize("number", [1, pytest.param(0, marks=pytest.mark.long)])
def test_a_node_that_fails_its_own_checks_is_named_on_all_of_them(
    tmp_path: Path, number: int
) -> None:
    with lab_or_skip() as lab:
        hosts = named_hosts(lab, 2)
        bad = hosts[number]
        with NodesJob(lab, hosts, tmp_path) as job:
            job.start(hosts[1 - number])
            job.start(bad, ["env", "GLOO_SOCKET_IFNAME=nope0", *job.command(bad)])
            assert job.exits(PATIENT) == {"alpha": 1, "bravo": 1}, job.screen()
            says(job, bad, "GLOO_SOCKET_IFNAME")
            says(job, hosts[1 - number], f"not started: {bad.name} cannot start: .*nope0")


@pytest.mark.long
def test_a_name_means_one_node_or_none_and_may_come_late(tmp_path: Path) -> None:
    def typed(hosts: Sequence[Host], host: Host) -> list[str]:
        del host
        name = "service" if hosts[1].name in started else "late"
        return ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{name}:{PORT}"]

    started: list[str] = []
    with lab_or_skip() as lab:
        hosts = named_hosts(lab, 2)
        with hosts[1].path("/run/lab/hosts").open("a") as names:
            names.writelines(f"{host.address} service\n" for host in hosts)
        with NodesJob(lab, hosts, tmp_path, nnodes="1:2", typed=typed) as job:
            job.start(hosts[0])
            says(job, hosts[0], "late .* does not resolve on this node")
            hosts[0].resolves("late", hosts[0].address)
            says(job, hosts[0], "coordinating 1:2 nodes at late")
            started.append(hosts[1].name)
            job.start(hosts[1])
            says(job, hosts[1], "service .* is several machines here")
            assert job.exits(PATIENT, [hosts[1]]) == {hosts[1].name: 2}


@pytest.mark.long
def test_launchers_of_two_runs_do_not_meet(tmp_path: Path) -> None:
    def typed(hosts: Sequence[Host], host: Host) -> list[str]:
        return endpoint(hosts, "--rdzv-id", "one" if host is hosts[0] else "another")

    with lab_or_skip() as lab:
        hosts = named_hosts(lab, 2)
        with NodesJob(lab, hosts, tmp_path, typed=typed) as job:
            job.start_all()
            says(job, hosts[0], r"bravo \(.*\) was refused: it belongs to run another")
            says(job, hosts[1], r"refused this node: it belongs to run another, this is run one")
