"""Which addresses and which pairs are probed, by table and property."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Address, CouldNotLook, Interface, Resolution, Unread
from holdfast.analysis.nodes.targets import ALL_PAIRS, MOST, data_addresses, measured_pairs
from tests.faults.machines import a_loopback, a_machine, an_interface, settings

LO, ETH0 = a_loopback(), an_interface()
ETH1 = an_interface("eth1", "10.1.0.5")
DOCKER = an_interface("docker0", "172.17.0.1", kind="bridge")
COMPOSE = an_interface("br-1f2e", "172.18.0.1", kind="bridge")
HYPERVISOR = an_interface("br0", "10.3.0.5", kind="bridge")
BOND = an_interface("bond0", "10.4.0.5", kind="virtual")
DOWN = an_interface("eth9", "10.9.0.5", running=False)
LINK_LOCAL = an_interface("eth2", "fe80::5")
IB = an_interface("ib0", "10.2.0.5")
DUAL = an_interface(
    "eth3", addresses=(Address(ip="2001:db8::5", prefix=64), Address(ip="10.5.0.5", prefix=24))
)


@pytest.mark.parametrize(
    ("interfaces", "ifname", "expected"),
    [
        ((LO, ETH0), "", ["eth0"]),
        ((LO, ETH1, ETH0), "", ["eth1", "eth0"]),  # the bootstrap's own choice first
        ((LO, ETH0, IB), "", ["ib0", "eth0"]),
        ((LO, ETH0, DOCKER, LINK_LOCAL, DOWN), "", ["eth0"]),
        ((LO, ETH0, DOCKER), "docker0", ["docker0", "eth0"]),  # what the job will use
        ((LO, ETH0, DOCKER), "^docker0", ["eth0"]),  # NCCL takes lo: no other node can reach it
        ((LO, ETH0, COMPOSE), "", ["eth0"]),
        ((LO, COMPOSE, ETH0), "", ["br-1f2e", "eth0"]),  # NCCL takes it first: it must be probed
        ((LO, ETH0, HYPERVISOR, BOND), "", ["eth0", "br0", "bond0"]),
        ((LO, ETH0, BOND), "eth0", ["eth0"]),
        ((LO, ETH0, DUAL), "", ["eth0", "eth3", "eth3"]),
    ],
    ids=str,
)
def test_the_addresses_a_job_may_use(
    interfaces: tuple[Interface, ...], ifname: str, expected: list[str]
) -> None:
    chosen = settings(NCCL_SOCKET_IFNAME=ifname) if ifname else ()
    facts = a_machine(interfaces=interfaces, settings=chosen)
    assert [one.interface for one in data_addresses(facts)] == expected


def test_an_address_that_only_a_name_leads_to() -> None:
    tunnel = an_interface("wg0", "10.8.0.5", kind="virtual")
    facts = a_machine(interfaces=(LO, ETH0, tunnel), settings=settings(NCCL_SOCKET_IFNAME="eth0"))
    assert ("wg0", "10.8.0.5") not in data_addresses(facts)
    master = Resolution(name="m", addresses=("10.8.0.5", "192.0.2.1"), error="", seconds=0.0)
    own = Resolution(name="node-a", addresses=("127.0.1.1",), error="", seconds=0.0)
    facts = a_machine(interfaces=(LO, ETH0, tunnel), own_name=own, master_name=master,
                      settings=settings(NCCL_SOCKET_IFNAME="eth0"))  # fmt: skip
    assert set(data_addresses(facts)) == {("eth0", "10.0.0.5"), ("wg0", "10.8.0.5")}


def test_what_could_not_be_read_takes_nothing_else_away() -> None:
    unread = Unread(why="the test took it away")
    facts = a_machine(interfaces=(LO, ETH0), settings=unread, software=unread, own_name=unread)
    assert data_addresses(facts) == (("eth0", "10.0.0.5"),)
    with pytest.raises(CouldNotLook):
        data_addresses(a_machine(interfaces=unread))


def test_a_node_with_very_many_addresses_is_cut_off() -> None:
    many = tuple(an_interface(f"eth{n}", f"10.{n}.0.5") for n in range(40))
    assert len(data_addresses(a_machine(interfaces=(LO, *many)))) == MOST


@given(st.integers(0, ALL_PAIRS))
def test_few_nodes_are_measured_all_with_all(count: int) -> None:
    names = [f"n{n}" for n in range(count)]
    pairs = measured_pairs(dict.fromkeys(names, ""))
    assert len(pairs) == len(set(pairs)) == count * (count - 1)


@given(st.lists(st.integers(0, 5), min_size=ALL_PAIRS + 1, max_size=200))
def test_many_nodes_cost_each_no_more(racks: list[int]) -> None:
    by_name = {f"n{at}": f"r{rack}" for at, rack in enumerate(racks)}
    pairs = measured_pairs(by_name)
    assert len(pairs) == len(set(pairs))
    assert all(a != b and (b, a) in pairs for a, b in pairs)
    partners = Counter(a for a, _ in pairs)
    # one partner in the rack, or the counterpart next door where the rack has no other
    assert set(partners) == set(by_name)
    assert max(partners.values()) <= 6
    neighbours = {(by_name[a], by_name[b]) for a, b in pairs}
    order = list(dict.fromkeys(by_name.values()))
    for one, other in itertools.pairwise(order):
        assert (one, other) in neighbours
