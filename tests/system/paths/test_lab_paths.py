"""The probes between hosts of a lab: each fault beside paths that are well."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest

from holdfast.analysis.nodes import Outcome, PathSizes, PortKind, Reached, Target
from holdfast.drill.lab import Host, Lab, LabInterface
from holdfast.system.paths import reach
from tests.drill.lab.fixture import lab_or_skip
from tests.system.paths.members import KEY, PORT, Member, members
from tests.system.sockets import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("lab-paths")]

OK = (Outcome.OK, "")
Seven = tuple[Lab, list[Host], list[Member]]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with lab_or_skip() as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def routed(lab: Lab) -> Iterator[tuple[Member, Member]]:
    """Two hosts with a router between them. First of all: a fresh IPv6 router takes a second or
    two to make sure that no other has its address."""
    near = lab.host("near", [LabInterface(mtu=9000, switch=1)], ipv6=True)
    router = lab.host(
        "r", [LabInterface(mtu=9000, switch=1), LabInterface("e1", switch=2, mtu=1400)], ipv6=True
    )
    far = lab.host("far", [LabInterface(mtu=9000, switch=2)], ipv6=True)
    router.setting("net.ipv4.ip_forward", 1)
    router.setting("net.ipv6.conf.all.forwarding", 1)
    near.route("10.79.0.0/24", via="10.78.0.2")
    far.route("10.78.0.0/24", via="10.79.0.2")
    near.route("fd77:79::/64", via="fd77:78::2")
    far.route("fd77:78::/64", via="fd77:79::2")
    with members([near, far]) as (one, other):
        yield one, other


@pytest.fixture(scope="module")
def all_seven(lab: Lab) -> Iterator[Seven]:
    hosts = lab.hosts(7, mtu=9000, ipv6=True)
    hosts[6].cut()
    with members(hosts) as ready:
        ready[0].reach(*ready[1:6])  # who is who at 30 % loss is not the question here
        yield lab, hosts, ready


@pytest.fixture
def seven(all_seven: Seven) -> Iterator[Seven]:
    yield all_seven
    all_seven[0].restore()


def said(reached: tuple[Reached, ...], kind: PortKind) -> dict[str, tuple[Outcome, str]]:
    """By target: the port of this kind, on IPv4 and IPv6 alike."""
    seen = {(one.target.node, one.outcome, one.error) for one in reached if one.target.kind is kind}
    by_node = {node: (outcome, error) for node, outcome, error in seen}
    outcomes = {(node, outcome) for node, outcome, _ in seen}
    assert len(outcomes) == len(by_node), f"IPv4 and IPv6 differ: {seen}"
    return by_node


def largest(path: PathSizes) -> int:
    return max((probe.bytes for probe in path.datagrams if probe.arrived), default=0)


def test_what_stands_in_the_way_is_told_apart_and_only_in_its_direction(seven: Seven) -> None:
    lab, (a, b, c, d, e, *_), (ma, *others, down) = seven
    well = ma.reach(*others)
    assert [(one.outcome, one.error) for one in well] == [OK] * 20
    assert {one.local_address for one in well} == {"10.77.0.4", "fd77:77::4"}

    lab.link(a, b).drop(PORT, to=b)
    lab.link(a, c).reject(PORT, answer="icmpx admin-prohibited", to=c)
    lab.link(a, d).reject(PORT, answer="tcp reset", to=d)
    lab.link(a, e).reject(PORT, answer="icmpx port-unreachable", to=e)
    reached = ma.reach(*others, down)
    master = said(reached, PortKind.MASTER)
    assert {node: outcome for node, (outcome, _) in master.items()} == {
        "b": Outcome.DROPPED,
        "c": Outcome.REJECTED,
        "d": Outcome.REFUSED,
        "e": Outcome.REFUSED,
        "f": Outcome.OK,
        "g": Outcome.NO_NEIGHBOUR,
    }
    assert "'administratively prohibited' from" in master["c"][1]
    assert master["d"][1].endswith("a reset came back")
    assert "'port unreachable' from" in master["e"][1]
    assert "does not answer ARP" in master["g"][1]
    ephemeral = said(reached, PortKind.EPHEMERAL)
    assert {node for node, answer in ephemeral.items() if answer != OK} == {"g"}
    for other in others:
        assert [(one.outcome, one.error) for one in other.reach(ma)] == [OK] * 4


def test_a_limit_of_size_is_found_and_who_copes_with_it(seven: Seven) -> None:
    lab, (a, b, c, _, e, *_), (ma, mb, mc, md, me, *_) = seven
    lab.link(a, b).mtu(1500)
    lab.link(a, e).drop(protocol="udp")
    c.set_mtu(1500)
    try:
        hole, differs, well, filtered = ma.sizes(mb, mc, md, me)
        back = mc.sizes(ma)[0]
    finally:
        c.set_mtu(9000)

    assert (well.interface, well.mtu, largest(well)) == ("e0", 9000, 9000)
    assert all(probe.arrived for probe in (*well.datagrams, *well.messages))

    assert largest(hole) == 1500
    assert min(probe.bytes for probe in hole.datagrams if not probe.arrived) > 1500
    lost = [probe for probe in hole.datagrams if not probe.arrived]
    assert all(probe.tries >= 6 and not probe.error for probe in lost)
    assert [(probe.bytes, probe.acknowledged) for probe in hole.messages if probe.arrived] == [
        (1, 1),
        (1024, 1024),
    ]
    assert {probe.acknowledged for probe in hole.messages if not probe.arrived} == {0}

    assert largest(differs) == 1500, "the smaller end takes no more"
    assert all(probe.arrived for probe in differs.messages), "TCP heeds the smaller end"
    assert (back.mtu, largest(back)) == (1500, 1500)
    assert all(probe.arrived for probe in (*back.datagrams, *back.messages))

    assert largest(filtered) == 0, "UDP is filtered: nothing is known of sizes"
    assert all(probe.arrived for probe in filtered.messages)
    assert hole.told_mtu is well.told_mtu is None


def test_loss_is_neither_a_drop_nor_a_limit_of_size(seven: Seven) -> None:
    lab, (a, b, c, *_), (ma, mb, mc, md, *_) = seven
    lab.link(a, b).loss(30)
    lab.link(a, c).loss(30, to=a)
    reached, (lossy, back, well), path = ma.all_at_once(mb, mc, md)
    assert {(one.outcome, one.error) for one in reached} == {OK}
    assert (well.sent, well.arrived, well.answered, well.error) == (40, 40, 40, "")
    assert lossy.sent > 40, "a lossy path is looked at twice"
    assert lossy.arrived is not None
    assert lossy.sent / 3 < lossy.arrived < lossy.sent
    assert lossy.answered < lossy.arrived
    assert back.arrived == back.sent, "lost on the way back only"
    assert back.answered < back.sent
    assert lossy.median_seconds is not None
    assert all(probe.arrived for probe in path.datagrams), path
    assert any(probe.tries > 1 for probe in path.datagrams)


def test_addresses_that_lead_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another network, docker0 with one address on all nodes, another node with b's address."""
    docker = LabInterface("docker0", ("172.17.0.1/16",), bridge=True)
    with lab_or_skip() as lab:
        a = lab.host("a", [LabInterface(), docker])
        b = lab.host("b", [LabInterface(), docker, LabInterface("ib0", switch=1)])
        c = lab.host("c", [LabInterface()])
        with members([a, b, c]) as (ma, mb, _):
            by_interface = {(one.target.interface, one.target.kind): one for one in ma.reach(mb)}
            for kind in PortKind:
                assert by_interface["e0", kind].outcome is Outcome.OK
                shared = by_interface["docker0", kind]
                assert shared.outcome is Outcome.OWN_ADDRESS
                assert shared.error == "a itself has the address 172.17.0.1"
                other = by_interface["ib0", kind]
                assert other.outcome is Outcome.NO_ROUTE
                assert other.error == "ENETUNREACH: Network is unreachable"
            ways = {way.target.interface: way for way in ma.routes(mb)}
            assert (ways["e0"].interface, ways["e0"].local_address) == ("e0", "10.77.0.1")
            assert (ways["e0"].gateway, ways["e0"].mtu, ways["e0"].own_address) == ("", 1500, False)
            assert ways["docker0"].own_address
            assert ways["ib0"].error == "ENETUNREACH: Network is unreachable"

            b.cut()
            c.network.add_address("e0", "10.77.0.2/24")
            twin = [t for t in mb.targets() if t.interface == "e0"]
            d = Member(lab.host("d"))  # has not met b, so that it asks who has the address
            try:
                reached = d.run(reach("d", twin, key=KEY))
                monkeypatch.setattr(sys.modules[reach.__module__], "PROOF_SECONDS", 0.3)
                port = next(t.port for t in twin if t.kind is PortKind.EPHEMERAL)
                with c.inside(), socket.create_server(("10.77.0.2", port)):
                    silent = d.run(reach("d", twin, key=KEY, seconds=0.5))
            finally:
                d.close()
            assert {one.error for one in silent if one.outcome is Outcome.FAILED} == {
                "connected, but no answer came"
            }
            assert {one.target.kind: (one.outcome, one.error) for one in reached} == {
                PortKind.MASTER: (Outcome.STRANGER, "connected, but node c answered"),
                PortKind.EPHEMERAL: (
                    Outcome.REFUSED,
                    "ECONNREFUSED: Connection refused; a reset came back",
                ),
            }


def test_a_router_that_says_what_it_takes(routed: tuple[Member, Member]) -> None:
    near, far = routed
    wait_for(lambda: {one.outcome for one in near.reach(far)} == {Outcome.OK}, seconds=20)
    assert {way.gateway for way in near.routes(far)} == {"10.78.0.2", "fd77:78::2"}
    for path, told_by in zip(near.sizes(far), ("10.78.0.2", "fd77:78::2"), strict=True):
        assert (path.told_mtu, path.told_by, largest(path)) == (1400, told_by, 1400)
        lost = [probe for probe in path.datagrams if not probe.arrived]
        assert {probe.error for probe in lost} == {"EMSGSIZE"}
        assert all(probe.arrived for probe in path.messages), "TCP heeds the router"
    nobody = Target(node="x", interface="e0", address="10.99.0.1", port=PORT, kind=PortKind.MASTER)
    near.host.route("10.99.0.0/24", via="10.78.0.2")
    (reached,) = near.run(reach("near", [nobody], key=KEY))
    assert reached.outcome is Outcome.REJECTED
    assert reached.error.endswith("ICMP 'network unreachable' from 10.78.0.2")


@pytest.mark.long
def test_loss_over_many_rounds(lab: Lab) -> None:
    """64 paths at 30 % loss each way: one may be unlucky."""
    hub, *others = (lab.host(f"m{n}", [LabInterface(switch=3, mtu=9000)]) for n in range(9))
    unlucky: list[Reached | PathSizes] = []
    with members([hub, *others]) as (one, *rest):
        one.reach(*rest)
        for other in others:
            lab.link(hub, other).loss(30)
        for _ in range(8):
            reached, paths = one.reach(*rest), one.sizes(*rest)
            unlucky += [each for each in reached if each.outcome is not Outcome.OK]
            unlucky += [path for path in paths if not all(d.arrived for d in path.datagrams)]
            assert all(loss.answered < loss.sent for loss in one.losses(*rest))
    lab.restore()
    assert len(unlucky) <= 1, unlucky
