"""`holdfast check` across real hosts, healthy and with what goes wrong between machines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.drill.lab import Host, Lab, LabInterface, LabUnavailableError
from tests.check.nodes.check_in_lab import PORT, check, finish, start_check
from tests.drill.lab.fixture import lab_or_skip

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("check-in-lab")]

# Half of what a full check costs: a test machine has two cores for all hosts.
NETWORK = ("--only", "1,2")

INTERFACES = (
    LabInterface("e0"),
    LabInterface("ib0", mtu=9000, switch=1),
    LabInterface("docker0", ("172.17.0.1/16",), bridge=True),
)


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Where Python may not keep what it compiled, every process would compile 400 modules."""
    with pytest.MonkeyPatch.context() as patch:
        if os.environ.get("PYTHONDONTWRITEBYTECODE"):
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("compiled")))
        yield


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[Lab, list[Host]]]:
    with lab_or_skip() as lab:
        yield lab, [lab.host(name, INTERFACES) for name in "abcd"]


@pytest.fixture
def healthy(cluster: tuple[Lab, list[Host]]) -> Iterator[tuple[Lab, list[Host]]]:
    yield cluster
    cluster[0].restore()


def test_healthy_nodes_are_left_in_peace(healthy: tuple[Lab, list[Host]]) -> None:
    lab, hosts = healthy
    said = check(lab, hosts)
    assert said.told() == []
    assert {node["name"] for node in said.document["nodes"]} == {"a", "b", "c", "d"}
    assert {path["state"] for path in said.document["paths"]} == {"ok"}
    assert said.document["absent"] == []


def test_each_path_is_named_for_what_is_wrong_with_it(healthy: tuple[Lab, list[Host]]) -> None:
    lab, (a, b, c, d) = healthy
    lab.link(a, b, "ib0").mtu(1500)
    lab.link(d, a).drop(29500, to=a)
    lab.link(c, a).reject(29500, to=a, answer="icmpx admin-prohibited")
    lab.link(c, d).loss(30)
    said = check(lab, [a, b, c, d], *NETWORK)
    assert said.summaries("mtu-black-hole") == [
        "a ↔ b drops packets from 2044 bytes on: 1500 pass, and the MTU is 9000"
    ], said.told()
    assert said.summaries("peer-unreachable") == [
        "c → a is blocked on the master port 29500: rejected; the way back passes",
        "d → a is blocked on the master port 29500: dropped; the way back passes",
    ], said.told()
    (lossy,) = said.summaries("packet-loss")
    assert lossy.startswith("c ↔ d loses up to ")
    assert said.slugs() == {"mtu-black-hole", "peer-unreachable", "packet-loss"}
    assert said.state(c, a) == "rejected"
    assert said.state(d, a) == "dropped"
    assert said.state(a, b) == said.state(b, a) == "large packets are lost"
    assert said.state(a, d) == said.state(b, d) == "ok"


@pytest.mark.long
def test_islands_are_told_and_ends_that_merely_differ_are_a_note(
    healthy: tuple[Lab, list[Host]],
) -> None:
    lab, (a, b, c, d) = healthy
    lab.partition([a, b], [c, d], but_port=PORT)
    a.set_mtu(1500, "ib0")
    try:
        said = check(lab, [a, b, c, d], *NETWORK)
    finally:
        a.set_mtu(9000, "ib0")
    assert said.summaries("network-partition") == ["the nodes form 2 islands: a and b | c and d"]
    assert said.slugs() <= {"network-partition", "mtu-black-hole"}, said.told()
    notes = [f["summary"] for f in said.findings if f["status"] == "note"]
    assert notes == ["the MTU differs between nodes: 1500 on a, 9000 on b"], said.told()


def test_what_differs_between_nodes_is_named_with_the_node(
    healthy: tuple[Lab, list[Host]], tmp_path: Path
) -> None:
    lab, (a, b, c, d) = healthy
    b.resolves("b", "127.0.1.1")
    try:
        d.clock(90)
    except LabUnavailableError as problem:
        pytest.skip(str(problem))
    every = {host: {"NCCL_SOCKET_IFNAME": "docker0"} for host in (a, b, c, d)}
    every[c]["NCCL_IB_TIMEOUT"] = "22"
    every[b]["PYTHONPATH"] = str(another_torch(tmp_path))
    try:
        said = check(lab, [a, b, c, d], "--only", "1,2,5,version-skew", env=every)
    finally:
        b.resolves("b", b.address)
        d.clock(0)
    assert said.by_host("hostname-misresolves") == {
        "b": "own name b resolves to the loopback address 127.0.1.1"
    }, said.told()
    assert said.by_host("env-mismatch-nodes") == {
        "c": "c has other settings: NCCL_IB_TIMEOUT is 22 (not set elsewhere)"
    }, said.told()
    assert said.by_host("version-skew")["b"].startswith(
        "torch differs between nodes: b has 2.8.0, the others "
    ), said.told()
    assert said.by_host("wrong-nic")[""] == (
        "NCCL will announce 172.17.0.1 (docker0) on a, b, c and d: each has this address for itself"
    ), said.told()
    assert list(said.by_host("clock-skew")) == ["d"], said.told()
    clocks = {node["name"]: node["clock"] for node in said.document["nodes"]}
    for name, ahead in (("a", 0), ("b", 0), ("c", 0), ("d", 90)):
        assert abs(clocks[name]["seconds"] - ahead) <= clocks[name]["bound"] < 5, clocks


def another_torch(folder: Path) -> Path:
    """What a node with another torch has first in its path; holdfast reads its version only."""
    package = folder / "torch"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "version.py").write_text("__version__ = '2.8.0'\ncuda = None\ngit_version = ''\n")
    return folder


def test_two_interfaces_in_one_subnet_and_a_filter_that_admits_loopback_are_named() -> None:
    with lab_or_skip() as lab:
        hosts = [
            lab.host(name, [LabInterface("e0"), LabInterface("e1", (f"10.77.0.{number}/24",))])
            for name, number in (("a", 101), ("b", 102))
        ]
        every = {host: {"NCCL_SOCKET_IFNAME": "^docker0"} for host in hosts}
        said = check(lab, hosts, *NETWORK, env=every)
    for node in ("a", "b"):
        assert said.by_host("overlapping-subnets")[node] == "e0, e1 share the subnet 10.77.0.0/24"
        assert "NCCL will announce lo (127.0.0.1)" in said.by_host("wrong-nic")[node], said.told()


def test_a_node_that_dies_is_named_and_the_rest_is_reported() -> None:
    with lab_or_skip() as lab:
        a, b, c = lab.hosts(3)
        running = start_check(lab, [a, b, c], "--only", "2,node-lost")
        told = running[0].stderr
        assert told is not None
        while "each of 3 nodes looks at itself" not in (line := told.readline()):
            assert line, "it ended early"
        c.crash()
        said = finish(running)
    (absent,) = said.document["absent"]
    assert absent["name"] == "c"
    assert list(said.by_host("node-lost")) == ["c"], said.told()
    assert said.state(a, b) == said.state(b, a) == "ok"
    assert said.document["seconds"] < 60  # 15 s until the kernel gives up, on a busy machine
