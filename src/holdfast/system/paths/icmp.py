"""Who answered a packet with an ICMP error, and what it said (`ip(7)`, IP_RECVERR).

An unprivileged socket gets these from its own error queue. Python before 3.14 has no names for
the numbers of linux/errqueue.h and linux/in.h.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import NamedTuple

IP_RECVERR, IPV6_RECVERR = 11, 25
MSG_ERRQUEUE = 0x2000
ORIGIN_ICMP, ORIGIN_ICMP6 = 2, 3

_EXTENDED_ERROR = struct.Struct("=IBBBBII")
_SENDER_AT = {int(socket.AF_INET): (4, 4), int(socket.AF_INET6): (8, 16)}
"""where the address stands in a sockaddr, and its length"""

_MEANING = {
    (ORIGIN_ICMP, 3, 0): "network unreachable",
    (ORIGIN_ICMP, 3, 1): "host unreachable",
    (ORIGIN_ICMP, 3, 2): "protocol unreachable",
    (ORIGIN_ICMP, 3, 3): "port unreachable",
    (ORIGIN_ICMP, 3, 4): "packet too big",
    (ORIGIN_ICMP, 3, 6): "network unknown",
    (ORIGIN_ICMP, 3, 7): "host unknown",
    (ORIGIN_ICMP, 3, 9): "network administratively prohibited",
    (ORIGIN_ICMP, 3, 10): "host administratively prohibited",
    (ORIGIN_ICMP, 3, 13): "administratively prohibited",
    (ORIGIN_ICMP, 11, 0): "time to live exceeded",
    (ORIGIN_ICMP6, 1, 0): "no route",
    (ORIGIN_ICMP6, 1, 1): "administratively prohibited",
    (ORIGIN_ICMP6, 1, 3): "address unreachable",
    (ORIGIN_ICMP6, 1, 4): "port unreachable",
    (ORIGIN_ICMP6, 1, 5): "source address failed policy",
    (ORIGIN_ICMP6, 1, 6): "route rejected",
    (ORIGIN_ICMP6, 2, 0): "packet too big",
    (ORIGIN_ICMP6, 3, 0): "hop limit exceeded",
}
_UNREACHABLE = {(ORIGIN_ICMP, 3, 1), (ORIGIN_ICMP6, 1, 3)}


class IcmpError(NamedTuple):
    number: int
    """the errno it stands for"""
    origin: int
    kind: int
    code: int
    mtu: int
    """of a 'packet too big', else 0"""
    sender: str
    """who said it: a router, a firewall, the target, or this node itself"""
    payload: bytes
    """the beginning of what it answers, as this socket sent it"""

    @property
    def host_unreachable(self) -> bool:
        return (self.origin, self.kind, self.code) in _UNREACHABLE

    @property
    def words(self) -> str:
        meaning = _MEANING.get((self.origin, self.kind, self.code))
        return f"ICMP '{meaning or f'type {self.kind} code {self.code}'}' from {self.sender}"


def want_icmp_errors(link: socket.socket, *, on: bool = True) -> None:
    if link.family == socket.AF_INET6:
        link.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, on)
    else:
        link.setsockopt(socket.IPPROTO_IP, IP_RECVERR, on)


def next_icmp_error(link: socket.socket) -> IcmpError | None:
    """None when there is none: always so for TCP on kernels before 5.8."""
    while True:
        try:
            payload, ancillary, _, _ = link.recvmsg(512, 512, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except OSError:
            return None
        for level, kind, data in ancillary:
            v4 = (level, kind) == (socket.IPPROTO_IP, IP_RECVERR)
            v6 = (level, kind) == (socket.IPPROTO_IPV6, IPV6_RECVERR)
            if (v4 or v6) and (error := parse(data, payload)):
                return error


def parse(data: bytes, payload: bytes) -> IcmpError | None:
    """A sock_extended_err with the sender's address; None for what this kernel itself refused."""
    if len(data) < _EXTENDED_ERROR.size:
        return None
    number, origin, kind, code, _, info, _ = _EXTENDED_ERROR.unpack_from(data)
    if origin not in (ORIGIN_ICMP, ORIGIN_ICMP6):
        return None
    mtu = info if _MEANING.get((origin, kind, code)) == "packet too big" else 0
    return IcmpError(
        number, origin, kind, code, mtu, _sender(data[_EXTENDED_ERROR.size :]), payload
    )


def _sender(address: bytes) -> str:
    family = struct.unpack_from("=H", address)[0] if len(address) >= 2 else 0
    at, length = _SENDER_AT.get(family, (0, 0))
    packed = address[at : at + length]
    return str(ipaddress.ip_address(packed)) if length and len(packed) == length else "?"
