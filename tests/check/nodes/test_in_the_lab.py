"""`holdfast check` across real hosts, healthy and with what goes wrong between machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.check.nodes.check_in_lab import PORT, check
from tests.lab import Host, Interface, Lab
from tests.lab.fixture import lab_or_skip

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("check-in-lab")]

# Half of what a full check costs: a test machine has two cores for all hosts.
NETWORK = ("--only", "1,2")

INTERFACES = (
    Interface("e0"),
    Interface("ib0", mtu=9000, switch=1),
    Interface("docker0", ("172.17.0.1/16",), bridge=True),
)


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


def test_two_interfaces_in_one_subnet_are_named() -> None:
    with lab_or_skip() as lab:
        hosts = [
            lab.host(name, [Interface("e0"), Interface("e1", (f"10.77.0.{number}/24",))])
            for name, number in (("a", 101), ("b", 102))
        ]
        said = check(lab, hosts, *NETWORK)
        assert (
            said.summaries("overlapping-subnets") == ["e0, e1 share the subnet 10.77.0.0/24"] * 2
        ), said.told()
