"""The kernel's own answer to 'which way to this address?': what `ip route get` shows.

Nothing is sent. Layouts are those of linux/rtnetlink.h.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterable

from holdfast.analysis.nodes import RouteTo, Target
from holdfast.system import netlink
from holdfast.system.sockets import error_name, family_of

RTM_NEWROUTE, RTM_GETROUTE = 24, 26
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PREFSRC, RTA_METRICS, RTA_VIA = 1, 4, 5, 7, 8, 18
RTAX_MTU = 2
RTN_LOCAL = 2
SIOCGIFMTU = 0x8921

_RTMSG = struct.Struct("=BBBBBBBBI")
_FAMILY_BYTES = 2


def routes(source: str, targets: Iterable[Target]) -> tuple[RouteTo, ...]:
    """One answer for each target, in their order."""
    with netlink.connect(socket.NETLINK_ROUTE) as link:
        return tuple(_route(link, source, target) for target in targets)


def _route(link: socket.socket, source: str, target: Target) -> RouteTo:
    packed = ipaddress.ip_address(target.address).packed
    head = _RTMSG.pack(family_of(target.address), len(packed) * 8, 0, 0, 0, 0, 0, 0, 0)
    request = head + netlink.pack_attribute(RTA_DST, packed)
    try:
        return parse(source, target, netlink.ask(link, RTM_GETROUTE, request, answer=RTM_NEWROUTE))
    except OSError as problem:
        return RouteTo(
            source=source,
            target=target,
            interface="",
            local_address="",
            gateway="",
            mtu=0,
            error=f"{error_name(problem)}: {os.strerror(problem.errno or 0)}",
        )


def parse(source: str, target: Target, message: bytes) -> RouteTo:
    """Raises ValueError on a message that is none."""
    if len(message) < _RTMSG.size:
        raise ValueError(f"rtmsg of {len(message)} bytes")
    kind = _RTMSG.unpack_from(message)[7]
    interface = _name(_attribute(message, RTA_OIF))
    metrics = _attribute(message, RTA_METRICS)
    told = netlink.attribute(metrics, RTAX_MTU, after=0)
    return RouteTo(
        source=source,
        target=target,
        interface=interface,
        local_address=_address(_attribute(message, RTA_PREFSRC)),
        gateway=_address(
            _attribute(message, RTA_GATEWAY) or _attribute(message, RTA_VIA)[_FAMILY_BYTES:]
        ),
        mtu=int.from_bytes(told, sys.byteorder) or interface_mtu(interface),
        error="",
        own_address=kind == RTN_LOCAL,
    )


def interface_mtu(name: str) -> int:
    """0 when there is no such interface (any more).

    By ioctl: /sys shows the interfaces of the namespace it was mounted in, not of this process.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("=16si12x", name.encode()[:15], 0)
            answer = fcntl.ioctl(any_socket, SIOCGIFMTU, request)
    except OSError:
        return 0
    mtu: int = struct.unpack_from("=16si", answer)[1]
    return mtu


def _attribute(message: bytes, kind: int) -> bytes:
    return netlink.attribute(message, kind, after=_RTMSG.size)


def _address(packed: bytes) -> str:
    return str(ipaddress.ip_address(packed)) if packed else ""


def _name(packed: bytes) -> str:
    """'' for none, and for an interface that is gone by now."""
    try:
        return socket.if_indextoname(int.from_bytes(packed, sys.byteorder))
    except (OSError, OverflowError):
        return ""
