from __future__ import annotations

import socket
from pathlib import Path

import pytest

from holdfast.analysis.machine import Unread
from holdfast.check.readers.names import (
    read_master_name,
    read_master_reach,
    read_own_fqdn,
    read_own_name,
    resolve,
)
from tests.faults.machines import a_plan
from tests.system.sockets import needs_root, run_python

# Two hosts: the far end of a veth pair lives in a namespace of its own, held by a process.
TWO_HOSTS = """
import subprocess, sys
from holdfast.check.readers.names import read_master_reach
from tests.faults.machines import a_plan

def run(line):
    subprocess.run(line.split(), check=True)

listen = (
    "import socket; s = socket.create_server(('10.77.0.2', 4000)); print(flush=True); input()"
)
far = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
far.stdin.write(b"up\\n"); far.stdin.flush(); far.stdout.readline()
try:
    run(f"ip link add e0 type veth peer name e0 netns {far.pid}")
    run("ip address add 10.77.0.1/24 dev e0")
    run("ip link set e0 up")
    inside = f"nsenter --target {far.pid} --net "
    run(inside + "ip address add 10.77.0.2/24 dev e0")
    run(inside + "ip link set e0 up")
    with subprocess.Popen(
        [*inside.split(), sys.executable, "-c", listen],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as server:
        server.stdout.readline()
        for address, port in (("10.77.0.2", 4000), ("10.77.0.2", 4001), ("10.77.0.1", 4000)):
            reach = read_master_reach(a_plan(master_addr=address, port=port))
            print(reach.error or "connected" if reach else "none")
        subprocess.run([*inside.split(), "ip", "address", "flush", "dev", "e0"], check=True)
        reach = read_master_reach(a_plan(master_addr="10.77.0.2", port=4000))
        print(reach.error)
        server.kill()
finally:
    far.kill(); far.communicate()
"""


def test_a_name_and_numbers_resolve() -> None:
    assert "127.0.0.1" in resolve("localhost").addresses
    for address in ("10.1.2.3", "fd00::7"):
        found = resolve(address)
        assert (found.name, found.addresses, found.error) == (address, (address,), "")
    assert 0 <= found.seconds < 1


@pytest.mark.parametrize("name", ["no-such-host.invalid", "x" * 300, "a..b"])
def test_a_name_that_cannot_resolve_says_so(name: str) -> None:
    found = resolve(name)
    assert found.addresses == ()
    assert found.error


def test_own_name_is_the_kernels() -> None:
    assert read_own_name(a_plan()).name == socket.gethostname()
    assert read_own_fqdn(a_plan()) == socket.getfqdn()


@pytest.mark.lab
def test_own_name_at_127_0_1_1(tmp_path: Path) -> None:
    """Debian's way, in a machine of our own: another host name and another /etc/hosts."""
    needs_root()
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 node-a.cluster.example node-a\n")
    code = (
        "import socket, subprocess, sys\n"
        "from holdfast.check.readers.names import read_own_fqdn, read_own_name\n"
        "from tests.faults.machines import a_plan\n"
        "subprocess.run(['mount', '--bind', sys.argv[1], '/etc/hosts'], check=True)\n"
        "socket.sethostname('node-a')\n"
        "found = read_own_name(a_plan())\n"
        "print(found.name, *found.addresses, read_own_fqdn(a_plan()))\n"
    )
    said = run_python(code, str(hosts), inside=["unshare", "--uts", "--mount"])
    assert said.split() == ["node-a", "127.0.1.1", "node-a.cluster.example"]


def test_no_master_was_named() -> None:
    assert read_master_name(a_plan()) is None
    assert read_master_reach(a_plan()) is None


@pytest.mark.parametrize("master", ["localhost", "127.0.1.1", "::1", "0.0.0.0"])
def test_a_master_on_this_machine_needs_no_connect(master: str) -> None:
    assert read_master_reach(a_plan(master_addr=master)) is None
    name = read_master_name(a_plan(master_addr=master))
    assert name is not None
    assert name.error == ""


def test_a_master_whose_port_is_not_known_yet() -> None:
    assert read_master_reach(a_plan(master_addr="192.0.2.77", port=0)) is None


def test_a_master_that_does_not_resolve() -> None:
    reach = read_master_reach(a_plan(master_addr="no-such-host.invalid"))
    assert isinstance(reach, Unread)
    assert "no-such-host.invalid does not resolve" in reach.why


@pytest.mark.lab
def test_a_master_on_another_host() -> None:
    """Listening, refusing, being ourselves, and silent (its address is gone, ARP still knows)."""
    needs_root()
    said = run_python(TWO_HOSTS, inside=["unshare", "--net"]).split()
    assert said[:3] == ["connected", "ECONNREFUSED", "none"]
    assert said[3] in ("ETIMEDOUT", "EHOSTUNREACH")
