"""Over what the ranks talk: pure parsing, and two real processes that talk over loopback."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.run.watch import transport
from holdfast.run.watch.transport import (
    SeenTransport,
    contradiction,
    from_nccl_log,
    links,
    sentence,
)
from holdfast.system.inet_diag import TcpConnection

INTERFACES = {"127.0.0.1": "lo", "10.0.0.5": "eth0", "fd00::5": "eth0"}


def a_connection(inode: int, local: str, port: int, peer: str, peer_port: int) -> TcpConnection:
    zero: dict[str, Any] = dict.fromkeys(TcpConnection._fields, 0)
    return TcpConnection(
        **{**zero, "inode": inode, "state": 1, "local": local, "local_port": port, "peer": peer,
           "peer_port": peer_port}
    )  # fmt: skip


def both_ends(first: int, second: int, address: str, port: int = 4000) -> list[TcpConnection]:
    return [
        a_connection(first, address, port, address, 50_000 + first),
        a_connection(second, address, 50_000 + first, address, port),
    ]


def test_a_link_has_its_ends_in_two_ranks() -> None:
    seen = [
        *both_ends(1, 2, "127.0.0.1"),
        *both_ends(3, 4, "10.0.0.5"),
        *both_ends(5, 6, "10.0.0.5", port=5000),  # 6 is the launcher's: the store
        *both_ends(7, 8, "127.0.0.1", port=6000),  # a rank with itself
        a_connection(9, "10.0.0.5", 7000, "192.0.2.1", 443),  # a logging service
    ]
    owners = {1: 100, 2: 101, 3: 100, 4: 101, 5: 100, 7: 100, 8: 100, 9: 100}
    assert links(seen, owners, INTERFACES) == (("eth0", "10.0.0.5"), ("lo", "127.0.0.1"))
    assert links(seen, {}, INTERFACES) == ()


@pytest.mark.parametrize(
    ("address", "name"),
    [("127.0.1.1", "lo"), ("::1", "lo"), ("fd00::5", "eth0"), ("10.9.9.9", "an unknown interface")],
)
def test_an_address_leads_to_its_interface(address: str, name: str) -> None:
    assert links(both_ends(1, 2, address), {1: 100, 2: 101}, INTERFACES) == ((name, address),)


NCCL_LOG = """\
box:41:41 [0] NCCL INFO Bootstrap: Using ens5:10.0.0.5<0>
box:41:99 [0] NCCL INFO NET/IB : No device found.
box:41:99 [0] NCCL INFO NET/Socket : Using [0]ens5:10.0.0.5<0> [1]ib0:10.1.0.5<0>
box:41:99 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
box:41:99 [0] NCCL INFO Channel 01/0 : 1[1] -> 2[0] [send] via NET/Socket/0
box:41:99 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via SHM/direct/direct
epoch 3 via P2P, Using nothing:1<0>
"""


def test_nccl_says_by_what_it_goes_and_where() -> None:
    assert from_nccl_log(NCCL_LOG) == (("NET/Socket", "P2P", "SHM"), ("ens5", "ib0"))
    assert from_nccl_log("step 1\n") == ((), ())


@given(st.text(alphabet=st.sampled_from("NCL IFO:Using[0]eth/Socketvia<>\n"), max_size=200))
def test_no_log_breaks_it(text: str) -> None:
    means, chosen = from_nccl_log(f"NCCL INFO Bootstrap: Using {text}\nNCCL INFO Channel {text}")
    assert all(name and ":" not in name for name in chosen)
    assert all(name.startswith(("NET/", "P2P", "SHM")) for name in means)


LO = (("lo", "127.0.0.1"),)


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (SeenTransport(), ""),
        (SeenTransport(links=LO, gloo=True), "ranks communicate over lo (127.0.0.1), Gloo"),
        (SeenTransport(gloo=True), ""),
        (
            SeenTransport(nccl=("NET/Socket",), nccl_interfaces=("eth0",)),
            "NCCL uses NET/Socket on eth0",
        ),
        (
            SeenTransport(links=(("eth0", "10.0.0.5"), *LO), nccl=("P2P",)),
            "ranks communicate over eth0 (10.0.0.5) and lo (127.0.0.1); NCCL uses P2P",
        ),
    ],
)
def test_the_sentence(seen: SeenTransport, told: str) -> None:
    assert sentence(seen) == told


@pytest.mark.parametrize(
    ("seen", "environment", "warning"),
    [
        (SeenTransport(links=LO, gloo=True), {}, ""),
        (SeenTransport(links=LO, gloo=True), {"GLOO_SOCKET_IFNAME": "lo"}, ""),
        (
            SeenTransport(links=LO, gloo=True),
            {"GLOO_SOCKET_IFNAME": "eth1"},
            "GLOO_SOCKET_IFNAME=eth1 is set, but the ranks communicate over lo",
        ),
        # other links than Gloo's may be anything's
        (SeenTransport(links=LO), {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"}, ""),
        (
            SeenTransport(links=(*LO, ("eth1", "10.0.0.5")), gloo=True),
            {"GLOO_SOCKET_IFNAME": "eth1"},
            "",
        ),
        (SeenTransport(gloo=True), {"GLOO_SOCKET_IFNAME": "eth1"}, ""),
        (SeenTransport(nccl_interfaces=("eth0",)), {"NCCL_SOCKET_IFNAME": "eth"}, ""),
        (
            SeenTransport(nccl_interfaces=("lo",)),
            {"NCCL_SOCKET_IFNAME": "^lo,docker"},
            "NCCL_SOCKET_IFNAME=^lo,docker is set, but NCCL uses lo",
        ),
    ],
)
def test_a_warning_when_another_interface_was_asked_for(
    seen: SeenTransport, environment: dict[str, str], warning: str
) -> None:
    assert contradiction(seen, environment) == warning


NAMED_THREAD = """
import socket, sys, threading
def loop():
    with open('/proc/thread-self/comm', 'w') as comm:
        comm.write('gloo_tcp_loop')
    print('ready', flush=True)
    sys.stdin.read()
connection = socket.socket(fileno=int(sys.argv[1]))
thread = threading.Thread(target=loop)
thread.start()
thread.join()
"""


@contextlib.contextmanager
def two_ranks_that_talk(address: str) -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server((address, 0)))
        first = stack.enter_context(socket.create_connection(server.getsockname()))
        second = stack.enter_context(server.accept()[0])
        ranks = []
        for end in (first, second):
            rank = subprocess.Popen(
                [sys.executable, "-c", NAMED_THREAD, str(end.fileno())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[end.fileno()],
            )  # fmt: skip
            stack.enter_context(rank)
            stack.callback(rank.kill)
            ranks.append(rank)
        for rank in ranks:
            assert rank.stdout
            assert rank.stdout.readline() == b"ready\n"
        yield [rank.pid for rank in ranks]


def test_two_processes_over_loopback(tmp_path: Any) -> None:
    with two_ranks_that_talk("127.0.0.1") as pids:
        assert transport.describe(pids, []) == "ranks communicate over lo (127.0.0.1), Gloo"
        assert transport.describe(pids[:1], []) == ""
        log = tmp_path / f"nccl.{pids[0]}"
        log.write_text(NCCL_LOG)
        seen = transport.look(pids, [], {"NCCL_DEBUG_FILE": f"{tmp_path}/nccl.%p"})
        assert seen.nccl_interfaces == ("ens5", "ib0")
        assert sentence(transport.look(pids, [str(log)], {})).endswith("SHM on ens5, ib0")


def test_processes_and_files_that_are_gone(tmp_path: Any) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert transport.look([gone.pid], [str(tmp_path / "none")], {}) == SeenTransport()
