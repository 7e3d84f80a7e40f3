from __future__ import annotations

import os
import socket

import pytest

from holdfast.analysis.machine import Bind
from holdfast.system.sockets import is_this_machine, try_store_binds
from tests.system.sockets import (
    BECOME_NOBODY,
    free_port,
    leave_time_wait,
    listener,
    needs_root,
    run_python,
)

FREE = {"IPv6": "", "IPv4": ""}
TAKEN = {"IPv6": "EADDRINUSE", "IPv4": "EADDRINUSE"}


def errors(binds: tuple[Bind, ...]) -> dict[str, str]:
    return {bind.family: bind.error for bind in binds}


def test_a_free_port_can_be_bound_and_no_client_could_have_connected() -> None:
    port = free_port()
    assert errors(try_store_binds(port)) == FREE
    assert errors(try_store_binds(port)) == FREE, "the probe itself must leave nothing behind"


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1"])
def test_an_ipv4_listener_blocks_both(address: str) -> None:
    with listener(address) as server:
        assert errors(try_store_binds(server.getsockname()[1])) == TAKEN


def test_a_listener_on_ipv6_loopback_leaves_ipv4_free() -> None:
    with listener("::1") as server:
        found = errors(try_store_binds(server.getsockname()[1]))
    assert found == {"IPv6": "EADDRINUSE", "IPv4": ""}


def test_an_outgoing_connection_from_the_port_blocks_both() -> None:
    with listener() as server, socket.socket() as client:
        client.bind(("127.0.0.1", 0))
        client.connect(server.getsockname())
        assert errors(try_store_binds(client.getsockname()[1])) == TAKEN


def test_client_side_time_wait_blocks_despite_reuseaddr() -> None:
    port = free_port()
    leave_time_wait(port, side="client")
    assert errors(try_store_binds(port)) == TAKEN


def test_server_side_time_wait_does_not_block() -> None:
    port = free_port()
    leave_time_wait(port, side="server")
    assert errors(try_store_binds(port)) == FREE


@pytest.mark.lab
def test_a_privileged_port_for_a_common_user() -> None:
    needs_root()
    code = (
        "from holdfast.system.sockets import try_store_binds\n"
        + BECOME_NOBODY
        + "print(try_store_binds(1))\n"
    )
    # in a namespace of its own, where no sysctl of this host has opened the low ports
    assert run_python(code, inside=["unshare", "--net"]).count("error='EACCES'") == 2


@pytest.mark.lab
@pytest.mark.skipif(not os.path.exists("/proc/sys/net/ipv6"), reason="kernel without IPv6")
def test_ipv6_switched_off_in_a_namespace() -> None:
    """`disable_ipv6` takes the addresses away, yet [::] can still be bound: the store finds that
    too. A kernel without IPv6 says EAFNOSUPPORT, which cannot be made here."""
    needs_root()
    code = (
        "from pathlib import Path\n"
        "from holdfast.system.sockets import try_store_binds\n"
        "Path('/proc/sys/net/ipv6/conf/all/disable_ipv6').write_text('1')\n"
        "print(try_store_binds(29500))\n"
    )
    said = run_python(code, inside=["unshare", "--net"])
    assert said.count("error=''") == 2, said


@pytest.mark.parametrize("host", ["", "localhost", "127.0.0.1", "127.9.9.9", socket.gethostname()])
def test_names_and_addresses_of_this_machine(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a" * 70, "2001:db8::1"])
def test_those_of_others(host: str) -> None:
    assert not is_this_machine(host)
