"""The addresses of this machine's interfaces: what `ip address` shows, by netlink where it may be
used.

Layouts are those of linux/if_addr.h and linux/rtnetlink.h.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.system import netlink

RTM_NEWADDR, RTM_GETADDR = 20, 22
IFA_ADDRESS, IFA_LOCAL, IFA_LABEL = 1, 2, 3
_IFADDRMSG = struct.Struct("=BBBBI")
SIOCGIFCONF, SIOCGIFNETMASK = 0x8912, 0x891B
_IFREQ = 16 + struct.calcsize("PPP")
"""bytes of a struct ifreq: a name and the largest of its union"""
MOST = 1024
"""addresses; one interface of a container host has one each"""
FAMILIES = (socket.AF_INET, socket.AF_INET6)


class InterfaceAddress(NamedTuple):
    interface: str
    ip: str
    prefix: int
    label: str = ""
    """of an alias such as 'eth0:1'; '' where it is the interface's own name"""


def interface_addresses() -> tuple[InterfaceAddress, ...]:
    """Of every interface, IPv4 before IPv6; raises OSError where the kernel will not tell."""
    request = _IFADDRMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    try:
        with netlink.connect(socket.NETLINK_ROUTE) as link:
            answers = list(netlink.dump(link, RTM_GETADDR, request, answer=RTM_NEWADDR))
    except OSError:  # a sandbox may forbid it
        return (*_ipv4_by_ioctl(), *_ipv6_by_proc())
    found = [address for message in answers if (address := parse(message))]
    return tuple(sorted(found, key=lambda one: ":" in one.ip))


def _ipv4_by_ioctl() -> Iterator[InterfaceAddress]:
    """As netdevice(7) has it."""
    room = array.array("B", bytes(_IFREQ * MOST))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        request = struct.pack("iL", len(room), room.buffer_info()[0])
        used, _ = struct.unpack("iL", fcntl.ioctl(asked, SIOCGIFCONF, request))
        for start in range(0, used, _IFREQ):
            entry = room[start : start + _IFREQ].tobytes()
            label = entry[:16].partition(b"\0")[0].decode(errors="replace")
            mask = fcntl.ioctl(asked, SIOCGIFNETMASK, entry)[20:24]
            name = label.partition(":")[0]
            yield InterfaceAddress(
                name,
                socket.inet_ntoa(entry[20:24]),
                int.from_bytes(mask, "big").bit_count(),
                label if label != name else "",
            )


def _ipv6_by_proc() -> Iterator[InterfaceAddress]:
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            rows = [line.split() for line in file]
    except FileNotFoundError:  # a kernel without IPv6
        rows = []
    for packed, _, prefix, _, _, name in rows:
        yield InterfaceAddress(
            name, str(ipaddress.ip_address(bytes.fromhex(packed))), int(prefix, 16)
        )


def parse(message: bytes) -> InterfaceAddress | None:
    """None for other families than IP, and for an interface that is gone by now."""
    if len(message) < _IFADDRMSG.size:
        raise ValueError(f"ifaddrmsg of {len(message)} bytes")
    family, prefix, _, _, index = _IFADDRMSG.unpack_from(message)
    # Of a point-to-point link IFA_ADDRESS is the other end; IFA_LOCAL is this one.
    packed = _attribute(message, IFA_LOCAL) or _attribute(message, IFA_ADDRESS)
    if family not in FAMILIES or not packed:
        return None
    try:
        name = socket.if_indextoname(index)
    except OSError:
        return None
    label = _attribute(message, IFA_LABEL).rstrip(b"\0").decode(errors="replace")
    ip = str(ipaddress.ip_address(packed))
    return InterfaceAddress(name, ip, prefix, label if label != name else "")


def _attribute(message: bytes, kind: int) -> bytes:
    return netlink.attribute(message, kind, after=_IFADDRMSG.size)
