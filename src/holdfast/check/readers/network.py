"""Interfaces and routes of this machine, in the kernel's own order."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from collections.abc import Mapping

from holdfast.analysis.machine import Address, Interface, Plan, Route
from holdfast.system.interface_addresses import interface_addresses

SYS_CLASS_NET = "/sys/class/net"

# include/uapi/linux/if.h, if_arp.h
IFF_LOOPBACK = 0x8
IFF_UP_AND_RUNNING = 0x1 | 0x40
SIOCGIFFLAGS = 0x8913
ARPHRD_ETHER = 1
# include/uapi/linux/route.h, ipv6_route.h
RTF_GATEWAY, RTF_REJECT = 0x2, 0x200
RTF_ANYCAST, RTF_CACHE, RTF_LOCAL = 0x00100000, 0x01000000, 0x80000000


def read_interfaces(plan: Plan) -> tuple[Interface, ...]:  # noqa: ARG001 - handed to every reader
    addresses = _addresses()
    # if_nameindex asks the kernel about our own network namespace; /sys may be another one's.
    # Its order is that of getifaddrs, by which NCCL and Gloo choose: the index, before Linux 6.9
    # the index modulo 256. It is kept.
    return tuple(
        interface(f"{SYS_CLASS_NET}/{name}", index, addresses, running=_runs(name))
        for index, name in socket.if_nameindex()
    )


def _runs(name: str) -> bool:
    """Asked by ioctl, because lo has the same index in every namespace: there a foreign /sys
    could not be told from our own. /sys leaves IFF_RUNNING out of its flags besides."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sH22x", name.encode(), 0)
        (flags,) = struct.unpack_from("=H", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request), 16)
    return int(flags) & IFF_UP_AND_RUNNING == IFF_UP_AND_RUNNING


def interface(
    folder: str, index: int, addresses: Mapping[str, tuple[Address, ...]], *, running: bool
) -> Interface:
    """One interface from its folder in /sys/class/net."""
    name = os.path.basename(folder)
    if _number(f"{folder}/ifindex") != index:
        raise OSError(f"{folder} does not show this network namespace's {name}")
    speed = _number(f"{folder}/speed")
    return Interface(
        name=name,
        state=_text(f"{folder}/operstate"),
        running=running,
        kind=_kind(folder),
        # virtio says -1, a link that is down refuses to be read
        speed=speed if speed and speed > 0 else None,
        mtu=int(_text(f"{folder}/mtu")),
        carrier_changes=_number(f"{folder}/carrier_changes"),
        addresses=addresses.get(name, ()),
    )


def _kind(folder: str) -> str:
    if int(_text(f"{folder}/flags"), 16) & IFF_LOOPBACK:
        return "loopback"
    if os.path.isdir(f"{folder}/bridge"):
        return "bridge"
    if os.path.exists(f"{folder}/device"):
        return "physical"
    return "veth" if _is_veth(folder) else "virtual"


def _is_veth(folder: str) -> bool:
    """A veth's iflink is its other end. A VLAN's or macvlan's is the card below it, but those
    also name that card (lower_eth0) or their own kind (DEVTYPE)."""
    link = _number(f"{folder}/iflink")
    return (
        link not in (None, 0, _number(f"{folder}/ifindex"))
        and _number(f"{folder}/type") == ARPHRD_ETHER
        and not any(entry.startswith("lower_") for entry in os.listdir(folder))
        and "DEVTYPE=" not in _text(f"{folder}/uevent")
    )


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


def _number(path: str) -> int | None:
    """None when the kernel has no such file or refuses the answer."""
    try:
        return int(_text(path))
    except OSError:
        return None


def _addresses() -> dict[str, tuple[Address, ...]]:
    found: dict[str, tuple[Address, ...]] = {}
    for one in interface_addresses():
        known = found.get(one.interface, ())
        address = Address(ip=one.ip, prefix=one.prefix, label=one.label)
        found[one.interface] = (*known, address)
    return found


def own_addresses() -> frozenset[str]:
    return frozenset(a.ip for addresses in _addresses().values() for a in addresses)


def read_routes(plan: Plan) -> tuple[Route, ...]:  # noqa: ARG001 - handed to every reader
    routes = parse_ipv4_routes(_text("/proc/net/route"))
    try:
        return routes + parse_ipv6_routes(_text("/proc/net/ipv6_route"))
    except FileNotFoundError:  # a kernel without IPv6
        return routes


def parse_ipv4_routes(table: str) -> tuple[Route, ...]:
    """The main table. Each address is a number in this machine's byte order."""
    routes = []
    for line in table.splitlines()[1:]:
        name, destination, gateway, flags, _, _, metric, mask, *_ = line.split()
        if int(flags, 16) & RTF_REJECT:
            continue  # 'unreachable': it leads nowhere, and names no interface
        prefix = int(mask, 16).bit_count()
        via = _ipv4(gateway) if int(flags, 16) & RTF_GATEWAY else ""
        destination = f"{_ipv4(destination)}/{prefix}"
        routes.append(
            Route(interface=name, destination=destination, gateway=via, metric=int(metric))
        )
    return tuple(routes)


def _ipv4(word: str) -> str:
    return str(ipaddress.IPv4Address(struct.pack("=I", int(word, 16))))


def parse_ipv6_routes(table: str) -> tuple[Route, ...]:
    """Where packets are sent; the kernel lists own addresses and multicast beside them."""
    routes = []
    for line in table.splitlines():
        destination, prefix, _, _, gateway, metric, _, _, flags, name = line.split()
        ip = ipaddress.IPv6Address(bytes.fromhex(destination))
        if int(flags, 16) & (RTF_REJECT | RTF_ANYCAST | RTF_CACHE | RTF_LOCAL) or ip.is_multicast:
            continue
        via = str(ipaddress.IPv6Address(bytes.fromhex(gateway)))
        routes.append(
            Route(
                interface=name,
                destination=f"{ip}/{int(prefix, 16)}",
                gateway=via if int(flags, 16) & RTF_GATEWAY else "",
                metric=int(metric, 16),
            )
        )
    return tuple(routes)
