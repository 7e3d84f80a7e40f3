from __future__ import annotations

import ipaddress
import socket
import struct
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Address, Interface, Route
from holdfast.check.readers import network
from tests.faults.machines import a_plan
from tests.system.sockets import needs_root, run_python

LOOK = """
import subprocess, sys
import msgspec
from holdfast.check.readers import network
from tests.faults.machines import a_plan
for command in sys.argv[2:]:
    subprocess.run(command.split(), check=True)
print(msgspec.json.encode(getattr(network, sys.argv[1])(a_plan())).decode())
"""
# /sys shows the network namespace it was mounted in
SYS = "mount -t sysfs sysfs /sys"


def look(reader: str, *commands: str) -> str:
    needs_root()
    return run_python(LOOK, reader, *commands, inside=["unshare", "--net", "--mount"])


def interfaces(*commands: str) -> dict[str, Interface]:
    said = look("read_interfaces", SYS, *commands)
    return {i.name: i for i in msgspec.json.decode(said, type=tuple[Interface, ...])}


def routes(*commands: str) -> tuple[Route, ...]:
    return msgspec.json.decode(look("read_routes", *commands), type=tuple[Route, ...])


def test_this_machine() -> None:
    found = network.read_interfaces(a_plan())
    assert [i.name for i in found] == [name for _, name in sorted(socket.if_nameindex())]
    loopback = next(i for i in found if i.kind == "loopback")
    assert loopback.running
    assert Address(ip="127.0.0.1", prefix=8) in loopback.addresses
    assert "127.0.0.1" in network.own_addresses()


@pytest.mark.lab
def test_kinds_states_and_addresses_in_a_namespace() -> None:
    found = interfaces(
        "ip link add v0 type veth peer name v1",
        "ip link add br0 type bridge",
        "ip link set v1 master br0",
        "ip link set v0 mtu 9000",
        "ip link set v0 up",
        "ip link set v1 up",
        "ip address add 10.77.0.1/20 dev v0 label v0:1",
        "ip address add fd77::1/56 dev v0 nodad",
    )
    assert {name: i.kind for name, i in found.items() if name in ("lo", "v0", "v1", "br0")} == {
        "lo": "loopback",
        "v1": "veth",
        "v0": "veth",
        "br0": "bridge",
    }
    assert next(iter(found)) == "lo"
    assert not found["lo"].running
    assert not found["br0"].running
    v0 = found["v0"]
    assert (v0.state, v0.running, v0.mtu, v0.speed) == ("up", True, 9000, 10000)
    assert Address(ip="10.77.0.1", prefix=20, label="v0:1") in v0.addresses
    assert Address(ip="fd77::1", prefix=56) in v0.addresses


@pytest.mark.lab
def test_an_interface_whose_other_end_is_down_does_not_run() -> None:
    found = interfaces("ip link add v0 type veth peer name v1", "ip link set v0 up")
    assert (found["v0"].state, found["v0"].running) == ("lowerlayerdown", False)


@pytest.mark.lab
def test_loopback_that_is_down_is_seen_although_sys_is_the_hosts() -> None:
    needs_root()
    said = run_python(LOOK, "read_interfaces", inside=["unshare", "--net"])
    (lo,) = msgspec.json.decode(said, type=list[Interface])
    assert (lo.name, lo.running) == ("lo", False)


@pytest.mark.lab
def test_the_sys_of_another_namespace_is_not_believed() -> None:
    """In a network namespace without its own /sys, `lo` may match by chance, a veth cannot."""
    needs_root()
    code = LOOK.replace("print(", "try:\n    print(").rstrip() + (
        "\nexcept OSError as problem:\n    print(problem)\n"
    )
    said = run_python(
        code, "read_interfaces", "ip link add holdfast0 type veth peer name holdfast1",
        inside=["unshare", "--net"],
    )  # fmt: skip
    assert "/sys/class/net/holdfast" in said
    assert "does not show this network namespace's" in said


CARD = {
    "ifindex": "2", "iflink": "2", "type": "1", "flags": "0x1003", "operstate": "up",
    "speed": "100000", "mtu": "9000", "carrier_changes": "3", "uevent": "INTERFACE=x\nIFINDEX=2",
}  # fmt: skip


def a_tree(folder: Path, *folders: str, **files: str) -> Interface:
    """One interface as another machine's /sys would show it."""
    folder.mkdir()
    for name in folders:
        (folder / name).mkdir()
    for name, text in {**CARD, **files}.items():
        (folder / name).write_text(text + "\n")
    return network.interface(str(folder), 2, {}, running=True)


def test_a_card_of_a_training_machine(tmp_path: Path) -> None:
    assert a_tree(tmp_path / "ens1", "device") == Interface(
        name="ens1",
        state="up",
        running=True,
        kind="physical",
        speed=100000,
        mtu=9000,
        carrier_changes=3,
        addresses=(),
    )


def test_speed_minus_one_is_unknown(tmp_path: Path) -> None:
    assert a_tree(tmp_path / "eth0", "device", speed="-1").speed is None


def test_a_vlan_is_not_a_veth(tmp_path: Path) -> None:
    vlan = a_tree(tmp_path / "ens1.7", "lower_ens1", iflink="3", uevent="DEVTYPE=vlan")
    assert vlan.kind == "virtual"
    macvlan = a_tree(tmp_path / "mv0", "lower_ens1", iflink="3")
    assert macvlan.kind == "virtual"


def test_tunnels_bonds_and_container_ends(tmp_path: Path) -> None:
    assert a_tree(tmp_path / "tun0", type="65534", operstate="unknown").state == "unknown"
    assert a_tree(tmp_path / "tunl0", type="768", iflink="0").kind == "virtual"
    assert a_tree(tmp_path / "bond0", uevent="DEVTYPE=bond").kind == "virtual"
    assert a_tree(tmp_path / "eth0", iflink="17").kind == "veth"


@pytest.mark.lab
def test_routes_of_a_namespace() -> None:
    found = routes(
        "ip link add v0 type veth peer name v1",
        "ip address add 10.77.0.1/20 dev v0",
        "ip address add fd77::1/56 dev v0 nodad",
        "ip link set v0 up",
        "ip link set v1 up",
        "ip route add default via 10.77.0.9 metric 7",
        "ip route add unreachable 10.99.0.0/16",
        "ip route add fd99::/16 via fd77::9 metric 9",
    )
    assert set(found) >= {
        Route(interface="v0", destination="0.0.0.0/0", gateway="10.77.0.9", metric=7),
        Route(interface="v0", destination="10.77.0.0/20", gateway="", metric=0),
        Route(interface="v0", destination="fd77::/56", gateway="", metric=256),
        Route(interface="v0", destination="fd99::/16", gateway="fd77::9", metric=9),
    }
    text = str(found)
    assert "10.99.0.0" not in text, "a route that refuses is no way out"
    assert "ff00::" not in text
    assert "/128" not in text, "an own address is no route"


@pytest.mark.lab
def test_a_namespace_without_routes() -> None:
    assert routes() == ()


HEADER = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"


@given(
    net=st.ip_addresses(v=4),
    prefix=st.integers(0, 32),
    gateway=st.ip_addresses(v=4),
    metric=st.integers(0, 2**31),
)
def test_ipv4_routes_come_back_as_the_kernel_wrote_them(
    net: ipaddress.IPv4Address, prefix: int, gateway: ipaddress.IPv4Address, metric: int
) -> None:
    whole = ipaddress.IPv4Network((net, prefix), strict=False)
    words = [
        f"{struct.unpack('=I', ip.packed)[0]:08X}"
        for ip in (whole.network_address, gateway, whole.netmask)
    ]
    line = f"eth0\t{words[0]}\t{words[1]}\t0003\t0\t0\t{metric}\t{words[2]}\t0\t0\t0\n"
    assert network.parse_ipv4_routes(HEADER + line) == (
        Route(interface="eth0", destination=str(whole), gateway=str(gateway), metric=metric),
    )


CAPTURED_IPV6 = """\
fd000000000000000000000000000000 40 00000000000000000000000000000000 00 \
00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
fd000000000000000000000000000001 00000400 00000002 00000000 00000003     eth0
00000000000000000000000000000001 80 00000000000000000000000000000000 00 \
00000000000000000000000000000000 00000000 00000002 00000000 80200001       lo
ff000000000000000000000000000000 08 00000000000000000000000000000000 00 \
00000000000000000000000000000000 00000100 00000004 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
"""


def test_captured_ipv6_routes() -> None:
    assert network.parse_ipv6_routes(CAPTURED_IPV6) == (
        Route(interface="eth0", destination="fd00::/64", gateway="", metric=256),
        Route(interface="eth0", destination="::/0", gateway="fd00::1", metric=1024),
    )


@given(st.text())
def test_nonsense_is_refused_as_nonsense(text: str) -> None:
    for parse in (network.parse_ipv4_routes, network.parse_ipv6_routes):
        try:
            found = parse("header\n" + text)
        except ValueError:
            continue
        assert all(isinstance(route, Route) for route in found)
