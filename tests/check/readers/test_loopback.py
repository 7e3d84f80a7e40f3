from __future__ import annotations

import time

import pytest

from holdfast.check.readers.loopback import read_loopback
from holdfast.system import tcp_table
from tests.faults.machines import a_plan
from tests.system.sockets import needs, needs_root, run_python

LOOK = """
import subprocess, sys
from holdfast.check.readers.loopback import read_loopback
from tests.faults.machines import a_plan
for command in sys.argv[2:]:
    subprocess.run(command.split(), check=True)
if sys.argv[1]:
    subprocess.run(["nft", "-f", "-"], input=sys.argv[1], text=True, check=True)
for reach in read_loopback(a_plan()):
    print(reach.address, reach.error or "ok")
"""
DROP = """
table inet t {
  chain c {
    type filter hook input priority 0;
    %s drop
  }
}
"""
UP = "ip link set lo up"


def look(rules: str, *commands: str) -> dict[str, str]:
    needs_root()
    said = run_python(LOOK, rules, *commands, inside=["unshare", "--net"])
    return dict(line.split(" ", 1) for line in said.splitlines())


def test_this_machine_can_talk_to_itself_and_nothing_stays_behind() -> None:
    ipv4, ipv6 = read_loopback(a_plan())
    assert (ipv4.address, ipv4.error) == ("127.0.0.1", "")
    assert ipv6.address == "::1"
    assert ipv6.error in ("", "EAFNOSUPPORT", "EADDRNOTAVAIL")
    assert tcp_table.read(ipv4.port) == []


@pytest.mark.lab
def test_a_firewall_that_drops_loopback_is_silence() -> None:
    needs("nft")
    start = time.monotonic()
    found = look(DROP % "iif lo meta l4proto tcp", UP)
    assert found == {"127.0.0.1": "ETIMEDOUT", "::1": "ETIMEDOUT"}
    assert time.monotonic() - start < 5


@pytest.mark.lab
def test_a_firewall_that_drops_one_family() -> None:
    needs("nft")
    found = look(DROP % "meta nfproto ipv6 meta l4proto tcp", UP)
    assert found == {"127.0.0.1": "ok", "::1": "ETIMEDOUT"}


@pytest.mark.lab
def test_a_firewall_that_lets_connect_but_no_data_through() -> None:
    needs("nft")
    # The handshake has no PSH flag, a byte of data has.
    found = look(DROP % "tcp flags & psh == psh", UP)
    assert found == {"127.0.0.1": "ETIMEDOUT", "::1": "ETIMEDOUT"}


@pytest.mark.lab
def test_no_ipv6_address() -> None:
    found = look("", UP, "ip -6 address flush dev lo")
    assert found == {"127.0.0.1": "ok", "::1": "EADDRNOTAVAIL"}


@pytest.mark.lab
def test_loopback_that_is_down() -> None:
    found = look("")
    assert found["127.0.0.1"] in ("ENETUNREACH", "EADDRNOTAVAIL")
    assert found["::1"] == "EADDRNOTAVAIL"
