"""Who does not answer ARP or neighbour discovery: what `ip neighbour` shows.

Layouts are those of linux/neighbour.h.
"""

from __future__ import annotations

import ipaddress
import socket
import struct

from holdfast.system import netlink

RTM_NEWNEIGH, RTM_GETNEIGH = 28, 30
NDA_DST = 1
NUD_INCOMPLETE, NUD_FAILED = 0x01, 0x20
_NDMSG = struct.Struct("=BBHiHBB")


def silent_neighbours() -> frozenset[str]:
    """The addresses that were asked for and did not answer, or not yet; raises OSError where the
    kernel will not tell."""
    request = _NDMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0, 0, 0)
    with netlink.connect(socket.NETLINK_ROUTE) as link:
        answers = list(netlink.dump(link, RTM_GETNEIGH, request, answer=RTM_NEWNEIGH))
    return frozenset(address for message in answers if (address := parse(message)))


def parse(message: bytes) -> str:
    """The neighbour's address when it is silent, else ''; raises ValueError on a short message."""
    if len(message) < _NDMSG.size:
        raise ValueError(f"ndmsg of {len(message)} bytes")
    family, _, _, _, state, _, _ = _NDMSG.unpack_from(message)
    packed = netlink.attribute(message, NDA_DST, after=_NDMSG.size)
    if family not in (socket.AF_INET, socket.AF_INET6) or not packed:
        return ""
    return str(ipaddress.ip_address(packed)) if state in (NUD_INCOMPLETE, NUD_FAILED) else ""
