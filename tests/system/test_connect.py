from __future__ import annotations

import socket
import time

import pytest

from holdfast.system.sockets import connect, error_name
from tests.system.sockets import free_port, listener, needs, needs_root, run_python


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_listener_is_reached(address: str) -> None:
    with listener(address) as server:
        reach = connect(address, server.getsockname()[1], seconds=2)
    assert (reach.address, reach.error) == (address, "")
    assert 0 <= reach.seconds < 2


def test_no_process_listens() -> None:
    assert connect("127.0.0.1", free_port(), seconds=2).error == "ECONNREFUSED"


def test_silence_costs_the_deadline_and_is_a_timeout() -> None:
    # A full backlog: the kernel drops further SYNs, as a firewall would.
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for client in (first, second):
            client.setblocking(False)
            client.connect_ex(server.getsockname())
        start = time.monotonic()
        reach = connect("127.0.0.1", server.getsockname()[1], seconds=0.1)
        assert reach.error == "ETIMEDOUT"
        assert 0.1 <= time.monotonic() - start < 2


@pytest.mark.lab
def test_no_route() -> None:
    needs_root()
    code = "from holdfast.system.sockets import connect; print(connect('10.9.8.7', 9, seconds=2))"
    assert "error='ENETUNREACH'" in run_python(code, inside=["unshare", "--net"])


REJECT = """
table inet t {
  chain c {
    type filter hook input priority 0;
    tcp dport 4000 reject with icmp type admin-prohibited
  }
}
"""


@pytest.mark.lab
def test_a_firewall_that_rejects() -> None:
    needs_root()
    needs("nft")
    code = (
        "import subprocess, sys\n"
        "from holdfast.system.sockets import connect\n"
        "subprocess.run(['ip', 'link', 'set', 'lo', 'up'], check=True)\n"
        "subprocess.run(['nft', '-f', '-'], input=sys.argv[1], text=True, check=True)\n"
        "print(connect('127.0.0.1', 4000, seconds=2))\n"
    )
    assert "error='EHOSTUNREACH'" in run_python(code, REJECT, inside=["unshare", "--net"])


def test_an_error_without_a_number_keeps_its_words() -> None:
    assert error_name(OSError("odd")) == "odd"
