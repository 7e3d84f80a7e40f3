"""The kernel's view of real connections, and datagrams of every kind."""

from __future__ import annotations

import json
import os
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.system import inet_diag, netlink
from tests.system.sockets import listener, needs, needs_root, run_python


def of(link: socket.socket) -> inet_diag.TcpConnection:
    inode = os.fstat(link.fileno()).st_ino
    return next(c for c in inet_diag.connections() if c.inode == inode)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_bytes_and_queues_of_a_connection(address: str) -> None:
    with listener(address) as server, socket.create_connection(server.getsockname()[:2]) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(bytes(1000))
            assert accepted.recv(400, socket.MSG_WAITALL) == bytes(400)
            seen, mine = of(accepted), of(client)
            assert (seen.local, seen.local_port) == server.getsockname()[:2]
            assert (seen.peer, seen.peer_port) == client.getsockname()[:2]
            assert (seen.received, seen.unread, seen.state) == (1000, 600, 1)
            assert mine.peer_port == seen.local_port
            assert mine.acked >= 1000  # the first packet counts as a byte
            assert (mine.backoff, mine.retransmitted) == (0, 0)
            assert mine.segment > 500


BLACK_HOLE = """
import json, os, socket, subprocess, time
from holdfast.system import inet_diag
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
accepted, _ = server.accept()
subprocess.run(["ip", "link", "set", "lo", "down"], check=True)
client.send(bytes(100))
inode = os.fstat(client.fileno()).st_ino
end = time.monotonic() + 20
while True:
    seen = next(c for c in inet_diag.connections() if c.inode == inode)
    if seen.backoff >= 1 or time.monotonic() > end:
        break
    time.sleep(0.02)
print(json.dumps(seen._asdict()))
"""


@pytest.mark.lab
def test_a_black_hole_shows_as_unacknowledged_data_and_backoff() -> None:
    needs_root()
    needs("ip")
    seen = json.loads(run_python(BLACK_HOLE, inside=["unshare", "--net"]))
    assert seen["backoff"] >= 1
    assert seen["unsent"] == 100


def test_a_short_tcp_info_of_an_old_kernel_reads_as_zero() -> None:
    message = bytes([socket.AF_INET, 1]) + bytes(70) + struct.pack("=HH", 12, 2) + bytes(8)
    seen = inet_diag.parse(message)
    assert (seen.acked, seen.received, seen.unacked, seen.local) == (0, 0, 0, "0.0.0.0")


def test_a_refusal_is_an_error() -> None:
    with pytest.raises(OSError, match="netlink"):
        list(_refused())


def _refused() -> list[inet_diag.TcpConnection]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, inet_diag.NETLINK_SOCK_DIAG) as link:
        link.settimeout(5)
        return list(inet_diag._dump(link, 99, inet_diag.CONNECTED))  # there is no family 99


@given(st.binary(max_size=300))
def test_any_datagram_is_read_or_refused(datagram: bytes) -> None:
    try:
        seen = [inet_diag.parse(message) for _, message in netlink.messages(datagram)]
    except ValueError:
        return
    assert all(0 <= one.local_port <= 65535 and one.unacked >= 0 for one in seen)


@given(st.lists(st.tuples(st.integers(0, 65535), st.binary(max_size=40))))
def test_messages_come_apart_as_they_were_put_together(parts: list[tuple[int, bytes]]) -> None:
    datagram = b""
    for kind, body in parts:
        datagram += struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body
        datagram += bytes(-len(datagram) % 4)
    assert list(netlink.messages(datagram)) == parts
