from __future__ import annotations

import ipaddress
import os
import socket
import struct
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Process
from holdfast.system import tcp_table
from holdfast.system.process import user_name
from tests.system.sockets import (
    BECOME_NOBODY,
    LISTEN,
    free_port,
    leave_time_wait,
    listener,
    needs_ipv6,
    needs_root,
    process_that_prints,
    run_python,
)

HEADER = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid …\n"
# A listener of uid 1000, a TIME_WAIT with 60.00 s left and a v4-mapped peer, as Linux 6 prints
# them on a little-endian machine.
CAPTURED = (
    HEADER + "   0: 00000000:733C 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000"
    "        0 10037 1 000000001d89111f 100 0 0 10 0\n"
    "   1: 0100007F:733C 0200000A:B58B 06 00000000:00000000 03:00001770 00000000     0"
    "        0 0 3 000000002bf9f61f\n"
    "   2: 0000000000000000FFFF00000100007F:733C 0000000000000000FFFF00000100007F:A546 01"
    " 00000000:00000000 00:00000000 00000000     0        0 11080 2 000000004ff20a5e 20 4 27\n"
    "   3: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0"
    "        0 99 1 000000001d89111f 100 0 0 10 0\n"
)


@pytest.mark.skipif(sys.byteorder != "little", reason="captured on a little-endian machine")
def test_a_captured_table() -> None:
    rows = tcp_table.parse(CAPTURED, 29500)
    assert rows == [
        tcp_table.Row("0.0.0.0", 29500, "0.0.0.0", 0, "LISTEN", 1000, 10037, None),
        tcp_table.Row(
            "127.0.0.1", 29500, "10.0.0.2", 46475, "TIME_WAIT", 0, 0,
            0x1770 / os.sysconf("SC_CLK_TCK"),
        ),
        tcp_table.Row("127.0.0.1", 29500, "127.0.0.1", 42310, "ESTABLISHED", 0, 11080, None),
    ]  # fmt: skip


def test_a_row_that_is_not_understood_is_not_passed_over() -> None:
    with pytest.raises(ValueError, match="too short"):
        tcp_table.parse(HEADER + "   0: 00000000:733C 00000000:0000 0A\n", 29500)
    with pytest.raises(ValueError, match="not an address"):
        tcp_table.parse_row("0: 0000:733C 00000000:0000 0A 0:0 00:00 0 0 0 7")


def _printed(ip: str) -> str:
    packed = ipaddress.ip_address(ip).packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words)


@given(
    local=st.ip_addresses().map(str),
    peer=st.ip_addresses().map(str),
    ports=st.tuples(st.integers(0, 65535), st.integers(0, 65535)),
    state=st.integers(1, 11),
    uid=st.integers(0, 2**32 - 1),
    inode=st.integers(0, 2**32),
    ticks=st.integers(0, 6000),
)
def test_every_row_comes_back_as_the_kernel_wrote_it(
    local: str, peer: str, ports: tuple[int, int], state: int, uid: int, inode: int, ticks: int
) -> None:
    line = (
        f"   7: {_printed(local)}:{ports[0]:04X} {_printed(peer)}:{ports[1]:04X} {state:02X} "
        f"00000000:00000000 03:{ticks:08X} 00000000 {uid:5d}        0 {inode} 1 0 100 0"
    )
    (row,) = tcp_table.parse(HEADER + line + "\n", ports[0])
    assert (row.local_port, row.peer_port) == ports
    for shown, ip in ((row.local_ip, local), (row.peer_ip, peer)):
        address = ipaddress.ip_address(ip)
        assert shown == str(getattr(address, "ipv4_mapped", None) or address)
    assert (row.uid, row.inode) == (uid, inode)
    if state == 6:
        assert row.seconds_left == ticks / os.sysconf("SC_CLK_TCK")
    else:
        assert row.seconds_left is None


@given(st.text(alphabet="0123456789ABCDEFx:-+_. \n", max_size=120), st.text())
def test_nonsense_is_refused_as_nonsense(near: str, far: str) -> None:
    for text in (near, far, f"0: 00000000:733C {near}"):
        try:
            rows = tcp_table.parse(HEADER + text, 29500)
        except ValueError:
            continue
        assert all(isinstance(row, tcp_table.Row) for row in rows)


def test_a_listener_and_the_connection_it_accepted() -> None:
    with listener() as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            accepted, _ = server.accept()
            with accepted:
                rows = {row.state: row for row in tcp_table.read(port)}
                assert rows.keys() == {"LISTEN", "ESTABLISHED"}
                assert rows["LISTEN"].local_ip == "127.0.0.1"
                assert rows["LISTEN"].uid == os.getuid()
                assert rows["LISTEN"].inode == os.fstat(server.fileno()).st_ino
                assert rows["ESTABLISHED"].peer_port == client.getsockname()[1]


def test_a_dual_stack_peer_is_shown_by_its_ipv4_address() -> None:
    needs_ipv6()
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            with accepted:
                rows = {row.state: row for row in tcp_table.read(port)}
    assert rows["LISTEN"].local_ip == "::"
    assert rows["ESTABLISHED"].local_ip == "127.0.0.1"


@pytest.mark.parametrize("side", ["client", "server"])
def test_time_wait_tells_its_seconds(side: str) -> None:
    port = free_port()
    leave_time_wait(port, side=side)
    (row,) = tcp_table.read(port)
    assert row.seconds_left is not None
    assert 0 < row.seconds_left <= 60
    assert row.inode == 0


def test_the_owner_is_the_process_that_listens() -> None:
    with process_that_prints(LISTEN, "a-store-of-kim") as (pid, port), listener() as mine:
        (theirs,) = tcp_table.read(int(port))
        inode = os.fstat(mine.fileno()).st_ino
        owners = tcp_table.owners_of({theirs.inode, inode})
    assert isinstance(owner := owners[theirs.inode], Process)
    assert owner.pid == pid
    assert "socket.create_server" in owner.command
    assert isinstance(me := owners[inode], Process)
    assert me.pid == os.getpid()


@pytest.mark.lab
def test_root_sees_another_users_socket() -> None:
    needs_root()
    with process_that_prints("import socket\n" + BECOME_NOBODY + LISTEN) as (pid, port):
        (row,) = tcp_table.read(int(port))
        owner = tcp_table.owners_of({row.inode})[row.inode]
    assert row.uid == 65534
    assert isinstance(owner, Process)
    assert (owner.pid, owner.user) == (pid, user_name(65534))


@pytest.mark.lab
def test_another_user_is_told_why_the_owner_is_not_seen() -> None:
    needs_root()
    look = (
        "import sys\n"
        "from holdfast.system import tcp_table\n"
        + BECOME_NOBODY
        + "print(tcp_table.owners_of({int(sys.argv[1])}))\n"
    )
    with listener() as server:
        said = run_python(look, str(os.fstat(server.fileno()).st_ino))
    assert "Unread(why='not permitted to see" in said


@pytest.mark.lab
def test_a_socket_that_no_visible_process_holds() -> None:
    """In a pid namespace of our own, as in a container that shares the host's network."""
    needs_root()
    look = (
        "import sys\n"
        "from holdfast.system import tcp_table\n"
        "print(tcp_table.owners_of({int(sys.argv[1])}))\n"
    )
    with listener() as server:
        inode = str(os.fstat(server.fileno()).st_ino)
        said = run_python(look, inode, inside=["unshare", "--pid", "--fork", "--mount-proc"])
    assert "may live in another container" in said
