"""`holdfast check` across real hosts, healthy and with what goes wrong between machines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.check.nodes.check_in_lab import check
from tests.lab import Host, Interface, Lab
from tests.lab.fixture import lab_or_skip

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("check-in-lab")]

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
    said = check(lab, [a, b, c, d])
    print(said.told(), said.document["paths"])
    assert 0
