"""The kernel's table of TCP sockets, /proc/net/tcp and tcp6, and who holds a socket.

The tables are those of this process's own network namespace.
"""

from __future__ import annotations

import ipaddress
import os
import struct
from collections.abc import Collection
from typing import NamedTuple

from holdfast.analysis.machine import Process, Unread
from holdfast.system import proc
from holdfast.system.process import describe

STATES = {  # include/net/tcp_states.h
    1: "ESTABLISHED",
    2: "SYN_SENT",
    3: "SYN_RECV",
    4: "FIN_WAIT1",
    5: "FIN_WAIT2",
    6: "TIME_WAIT",
    7: "CLOSE",
    8: "CLOSE_WAIT",
    9: "LAST_ACK",
    10: "LISTEN",
    11: "CLOSING",
}


class Row(NamedTuple):
    local_ip: str
    local_port: int
    peer_ip: str
    peer_port: int
    state: str
    uid: int
    """meaningless when inode is 0"""
    inode: int
    """0 when no process holds the socket any more (TIME_WAIT, handshakes, orphans)"""
    seconds_left: float | None
    """only for TIME_WAIT"""


def read(local_port: int) -> list[Row]:
    """Every socket of both families with this local port."""
    rows = _read("/proc/net/tcp", local_port)
    try:
        return rows + _read("/proc/net/tcp6", local_port)
    except FileNotFoundError:  # a kernel without IPv6
        return rows


def _read(path: str, local_port: int) -> list[Row]:
    with open(path, encoding="utf-8") as file:
        return parse(file.read(), local_port)


def parse(table: str, local_port: int) -> list[Row]:
    """The rows with this local port; a row we do not understand raises ValueError."""
    wanted = f":{local_port:04X}"
    rows = []
    for line in table.split("\n")[1:]:
        # Busy hosts have 100 000 rows: look at the port before taking a row apart.
        start = line.split(None, 2)
        if len(start) > 1 and start[1].endswith(wanted):
            rows.append(parse_row(line))
    return rows


def parse_row(line: str) -> Row:
    fields = line.split()
    if len(fields) < 10:
        raise ValueError(f"a row of /proc/net/tcp is too short: {line!r}")
    number = int(fields[3], 16)
    state = STATES.get(number, f"state {number}")
    return Row(
        *_endpoint(fields[1]),
        *_endpoint(fields[2]),
        state=state,
        uid=int(fields[7]),
        inode=int(fields[9]),
        seconds_left=_seconds(fields[5]) if state == "TIME_WAIT" else None,
    )


def _endpoint(text: str) -> tuple[str, int]:
    """'0100007F:7247' -> ('127.0.0.1', 29255).

    Each 32-bit word of the address is printed as a number in this machine's byte order.
    """
    address, _, port = text.partition(":")
    if len(address) not in (8, 32):
        raise ValueError(f"not an address of /proc/net/tcp: {text!r}")
    count = len(address) // 8
    packed = struct.pack(f"={count}I", *struct.unpack(f">{count}I", bytes.fromhex(address)))
    if len(packed) == 4:
        return str(ipaddress.IPv4Address(packed)), int(port, 16)
    ip = ipaddress.IPv6Address(packed)
    # An IPv4 peer of a dual-stack socket: people know it by its IPv4 address.
    return str(ip.ipv4_mapped or ip), int(port, 16)


def _seconds(timer: str) -> float:
    """The column 'tr:tm->when': the second number is in ticks of USER_HZ, not of the kernel."""
    return int(timer.partition(":")[2], 16) / os.sysconf("SC_CLK_TCK")


def owners_of(inodes: Collection[int]) -> dict[int, Process | Unread]:
    """Who holds these sockets: one walk over /proc/*/fd, which ends when all are found.

    Several processes may share a socket; the lowest pid is named, most often their parent.
    """
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    pids: dict[int, int] = {}
    visible = proc.pids()
    denied = proc.is_restricted(visible)
    for pid in visible:
        if len(pids) == len(wanted):
            break
        try:
            for link in proc.open_files(pid) & wanted.keys():
                pids.setdefault(wanted[link], pid)
        except PermissionError:
            denied = True
        except proc.GONE:
            continue  # it ended while we looked
    unseen = Unread(
        why="not permitted to see which process holds it (its own user or root may)"
        if denied
        else "no process visible here holds it: it may live in another container"
    )
    return {inode: describe(pids[inode]) if inode in pids else unseen for inode in inodes}
