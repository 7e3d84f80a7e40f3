from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Address, Interface, Route, Unread, addresses
from tests.faults.machines import a_loopback, a_machine, an_interface

ETH = an_interface(
    addresses=(Address(ip="fe80::5%eth0", prefix=64), Address(ip="10.0.0.5", prefix=24))
)
INTERFACES = (a_loopback(), ETH)


@given(st.text())
def test_no_text_breaks_a_question(text: str) -> None:
    assert isinstance(addresses.is_loopback(text), bool)
    assert isinstance(addresses.is_link_local(text), bool)
    assert addresses.carrier(INTERFACES, text) in (*INTERFACES, None)
    assert addresses.neighbour_on(INTERFACES, text) in (*INTERFACES, None)


@given(st.ip_addresses(v=4))
def test_a_mapped_address_is_the_ipv4_address_it_stands_for(
    ip: ipaddress.IPv4Address,
) -> None:
    assert addresses.parse(f"::ffff:{ip}") == ip
    assert addresses.is_loopback(f"::ffff:{ip}") == addresses.is_loopback(str(ip))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.1.1", True),
        ("::1", True),
        ("0.0.0.0", True),
        ("::", True),
        ("10.0.0.5", False),
        ("node-a", False),
        ("128.0.0.1", False),
    ],
)
def test_loopback(text: str, expected: bool) -> None:
    assert addresses.is_loopback(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.5", "eth0"),
        ("::ffff:10.0.0.5", "eth0"),
        ("fe80::5", "eth0"),
        ("fe80::5%eth0", "eth0"),
        ("127.0.1.1", "lo"),
        ("10.0.0.6", None),
        ("node-a", None),
    ],
)
def test_carrier(text: str, expected: str | None) -> None:
    interface = addresses.carrier(INTERFACES, text)
    assert (interface.name if interface else None) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("10.0.0.77", "eth0"), ("10.0.1.77", None), ("fe80::9", "eth0")]
)
def test_neighbour(text: str, expected: str | None) -> None:
    interface = addresses.neighbour_on(INTERFACES, text)
    assert (interface.name if interface else None) == expected


@pytest.mark.parametrize(
    ("interface", "expected"),
    [
        (an_interface("docker0", kind="bridge"), True),
        (an_interface("br-0a1b2c3d4e5f", kind="bridge"), True),
        (an_interface("virbr0", kind="bridge"), True),
        (an_interface("br0", kind="bridge"), False),
        (an_interface("docker-net", kind="physical"), False),
    ],
)
def test_private_bridge(interface: Interface, expected: bool) -> None:
    assert addresses.is_private_bridge(interface) is expected


def test_outward_follows_the_cheapest_default_route() -> None:
    routes = (
        Route(interface="wlan0", destination="0.0.0.0/0", gateway="192.168.1.1", metric=600),
        Route(interface="eth0", destination="0.0.0.0/0", gateway="10.0.0.1", metric=100),
    )
    wifi = an_interface("wlan0", "192.168.1.7")
    machine = a_machine(interfaces=(a_loopback(), wifi, ETH), routes=routes)
    assert addresses.outward(machine) == ("eth0", "10.0.0.5")


def test_outward_without_routes_takes_a_running_card() -> None:
    down = an_interface("eth9", "10.9.0.1", running=False)
    machine = a_machine(interfaces=(a_loopback(), down, ETH), routes=Unread(why="no /proc"))
    assert addresses.outward(machine) == ("eth0", "10.0.0.5")
    assert addresses.outward(a_machine(interfaces=Unread(why="no /sys"))) is None
    assert addresses.outward(a_machine(interfaces=(a_loopback(),), routes=())) is None


def test_outward_in_a_network_without_a_way_out_takes_what_is_not_private() -> None:
    docker = an_interface("docker0", "172.17.0.1", kind="bridge")
    inside = an_interface("e0", "10.0.0.5", kind="veth")
    machine = a_machine(interfaces=(a_loopback(), docker, inside), routes=())
    assert addresses.outward(machine) == ("e0", "10.0.0.5")


@pytest.mark.parametrize(
    ("destination", "interface", "expected"),
    [
        ("::/0", "eth0", True),
        ("2001:db8::/64", "eth0", True),
        ("2001:db8::5/128", "eth0", False),
        ("fe80::/64", "eth0", False),
        ("ff00::/8", "eth0", False),
        ("::/0", "lo", False),
        ("0.0.0.0/0", "eth0", False),
        ("nonsense", "eth0", False),
    ],
)
def test_ipv6_route(destination: str, interface: str, expected: bool) -> None:
    route = Route(interface=interface, destination=destination, gateway="", metric=1)
    assert addresses.has_ipv6_route([route]) is expected
