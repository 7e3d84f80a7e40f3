"""The addresses of this machine's interfaces, by netlink: what `ip address` shows.

Layouts are those of linux/if_addr.h and linux/rtnetlink.h.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import NamedTuple

from holdfast.system import netlink

RTM_NEWADDR, RTM_GETADDR = 20, 22
IFA_ADDRESS, IFA_LOCAL, IFA_LABEL = 1, 2, 3
_IFADDRMSG = struct.Struct("=BBBBI")
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
    with netlink.connect(socket.NETLINK_ROUTE) as link:
        answers = list(netlink.dump(link, RTM_GETADDR, request, answer=RTM_NEWADDR))
    found = [address for message in answers if (address := parse(message))]
    return tuple(sorted(found, key=lambda one: ":" in one.ip))


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
