"""The kernel's view of this namespace's TCP connections, by netlink (INET_DIAG).

It needs no root, and it tells what nothing else does: bytes that really moved (/proc/PID/io
does not count recv and send), and data that the other side never acknowledged, which tells a
black-holed link from a stuck program. Layouts are those of linux/inet_diag.h and linux/tcp.h.
"""

from __future__ import annotations

import functools
import ipaddress
import socket
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.system import netlink

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
INET_DIAG_INFO = 2

CONNECTED = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11
"""established, both FIN_WAITs, CLOSE_WAIT, LAST_ACK, CLOSING: a connection with counters"""
CONNECTING = 1 << 2

_REQUEST = struct.Struct("=BBBxI48x")
_MESSAGE = struct.Struct("=BBBB2s2s16s16sI8sIIIII")
_COUNTERS = struct.Struct("=xxBxxxxx4I")  # retransmits; rto, ato, two segment sizes
_NUMBER = struct.Struct("=I")
_TOTALS = struct.Struct("=QQII")  # bytes acked and received, segments out and in

_UNACKED_AT, _RETRANSMITTED_AT, _TOTALS_AT, _DATA_OUT_AT = 24, 100, 120, 156
"""offsets in struct tcp_info"""


class TcpConnection(NamedTuple):
    inode: int
    state: int
    """1 is established, 2 waits for an answer to its first packet"""
    local: str
    local_port: int
    peer: str
    peer_port: int
    unread: int
    """bytes that came and that the program has not fetched"""
    unsent: int
    """bytes the program wrote that the other side has not acknowledged"""
    segment: int
    """the largest segment it sends, bytes"""
    unacked: int
    """segments on the way"""
    backoff: int
    """times in a row that the retransmission timer ran out; 0 for a healthy connection, and for one
    whose other end does not read (there TCP asks for room now and then, which is another timer)"""
    timer: float
    """seconds until it tries again; doubled each time that it runs out"""
    retransmitted: int
    """segments sent again, in its whole life"""
    acked: int
    received: int
    """bytes, in its whole life"""
    segments_in: int
    """that arrived, in its whole life"""
    data_out: int
    """segments with data, sent again or not, in its whole life; both 0 in a kernel before 4.6"""


def connections(*, states: int = CONNECTED | CONNECTING) -> list[TcpConnection]:
    """Every TCP connection of both families; raises OSError where the kernel will not tell."""
    with netlink.connect(NETLINK_SOCK_DIAG) as link:
        found = list(_dump(link, socket.AF_INET, states))
        return found + list(_dump(link, socket.AF_INET6, states))


def _dump(link: socket.socket, family: int, states: int) -> Iterator[TcpConnection]:
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), states)
    return map(parse, netlink.dump(link, SOCK_DIAG_BY_FAMILY, body, answer=SOCK_DIAG_BY_FAMILY))


def parse(message: bytes) -> TcpConnection:
    """One inet_diag_msg with its attributes; raises ValueError on a short one."""
    if len(message) < _MESSAGE.size:
        raise ValueError(f"inet_diag_msg of {len(message)} bytes")
    (family, state, _, _, local_port, peer_port, local, peer, _, _, _, unread, unsent, _, inode) = (
        _MESSAGE.unpack_from(message)
    )
    info = _tcp_info(message)
    return TcpConnection(
        inode=inode,
        state=state,
        local=_address(family, local),
        local_port=int.from_bytes(local_port, "big"),
        peer=_address(family, peer),
        peer_port=int.from_bytes(peer_port, "big"),
        unread=unread,
        unsent=unsent,
        **info,
    )


def _tcp_info(message: bytes) -> dict[str, Any]:
    info = netlink.attribute(message, INET_DIAG_INFO, after=_MESSAGE.size)
    # Older kernels know a shorter tcp_info: what they do not tell is zero.
    info = info.ljust(_DATA_OUT_AT + _NUMBER.size, b"\0")
    backoff, timer, _, segment, _ = _COUNTERS.unpack_from(info)
    acked, received, _, segments_in = _TOTALS.unpack_from(info, _TOTALS_AT)

    def number(at: int) -> int:
        return int(_NUMBER.unpack_from(info, at)[0])

    return {
        "segment": segment,
        "unacked": number(_UNACKED_AT),
        "backoff": backoff,
        "timer": timer / 1e6,
        "retransmitted": number(_RETRANSMITTED_AT),
        "acked": acked,
        "received": received,
        "segments_in": segments_in,
        "data_out": number(_DATA_OUT_AT),
    }


@functools.lru_cache(maxsize=4096)  # a job has thousands of connections between few addresses
def _address(family: int, packed: bytes) -> str:
    if family == socket.AF_INET:
        return str(ipaddress.IPv4Address(packed[:4]))
    ip = ipaddress.IPv6Address(packed)
    return str(ip.ipv4_mapped or ip)
