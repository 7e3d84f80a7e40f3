from __future__ import annotations

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Bind, PortFacts, Process, StoreAnswer, Unread
from holdfast.check.readers.port import parse_ranges, read_port, read_port_ranges
from holdfast.system.process import user_name
from tests.faults.machines import a_plan
from tests.system.sockets import (
    BECOME_NOBODY,
    LISTEN,
    free_port,
    leave_time_wait,
    listener,
    needs_root,
    process_that_prints,
    run_python,
)

FREE = (Bind(family="IPv6", error=""), Bind(family="IPv4", error=""))
TAKEN = (Bind(family="IPv6", error="EADDRINUSE"), Bind(family="IPv4", error="EADDRINUSE"))

STORE = """
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
store.set("epoch", "7")
print(store.port, store.num_keys(), flush=True)
input()
"""


def test_no_port_was_chosen() -> None:
    empty = PortFacts(port=0, binds=(), listeners=(), others=(), store=None)
    assert read_port(a_plan(port=0)) == empty


def test_a_free_port() -> None:
    port = free_port()
    facts = read_port(a_plan(port=port))
    assert facts == PortFacts(port=port, binds=FREE, listeners=(), others=(), store=None)


def test_a_listener_is_named_with_its_process() -> None:
    with process_that_prints(LISTEN) as (pid, line):
        port = int(line)
        facts = read_port(a_plan(port=port))
    assert facts.binds == TAKEN
    (found,) = facts.listeners
    assert found.local == f"127.0.0.1:{port}"
    assert isinstance(found.owner, Process)
    assert found.owner.pid == pid
    assert found.user == found.owner.user
    assert facts.others == ()
    assert isinstance(facts.store, Unread), "this listener never says a word"


def test_a_listener_on_ipv6_loopback_only() -> None:
    with listener("::1") as server:
        port = server.getsockname()[1]
        facts = read_port(a_plan(port=port))
    assert {bind.family: bind.error for bind in facts.binds} == {"IPv6": "EADDRINUSE", "IPv4": ""}
    assert [c.local for c in facts.listeners] == [f"[::1]:{port}"]


def test_the_store_of_another_job() -> None:
    with process_that_prints(STORE) as (pid, line):
        port, keys = map(int, line.split())
        facts = read_port(a_plan(port=port))
    assert facts.store == StoreAnswer(is_store=True, keys=keys)
    assert [c.local for c in facts.listeners] == [f"[::]:{port}"]
    owners = [c.owner for c in (*facts.listeners, *facts.others)]
    assert {o.pid for o in owners if isinstance(o, Process)} == {pid}
    assert {c.state for c in facts.others} == {"ESTABLISHED"}


def test_client_side_time_wait_blocks_and_tells_the_seconds() -> None:
    port = free_port()
    leave_time_wait(port, side="client")
    facts = read_port(a_plan(port=port))
    assert facts.binds == TAKEN
    assert facts.listeners == ()
    (found,) = facts.others
    assert (found.state, found.user, found.owner) == ("TIME_WAIT", "", None)
    assert found.seconds_left is not None
    assert 0 < found.seconds_left <= 60


def test_server_side_time_wait_is_seen_but_does_not_block() -> None:
    port = free_port()
    leave_time_wait(port, side="server")
    facts = read_port(a_plan(port=port))
    assert facts.binds == FREE
    assert [c.state for c in facts.others] == ["TIME_WAIT"]


def test_an_outgoing_connection_that_sits_on_the_port() -> None:
    with listener() as server, socket.create_connection(server.getsockname()) as client:
        facts = read_port(a_plan(port=client.getsockname()[1]))
    assert facts.binds == TAKEN
    assert facts.listeners == ()
    assert [c.state for c in facts.others] == ["ESTABLISHED"]


@pytest.mark.lab
def test_another_users_listener_keeps_its_users_name() -> None:
    needs_root()
    look = (
        "import sys\n"
        "from holdfast.check.readers.port import read_port\n"
        "from tests.faults.machines import a_plan\n"
        + BECOME_NOBODY
        + "print(read_port(a_plan(port=int(sys.argv[1]))).listeners[0])\n"
    )
    with listener() as server:
        said = run_python(look, str(server.getsockname()[1]))
    assert f"user='{user_name(0)}', owner=Unread(why='not permitted" in said


@pytest.mark.lab
def test_port_ranges_as_a_namespace_sets_them() -> None:
    needs_root()
    code = (
        "from pathlib import Path\n"
        "from holdfast.check.readers.port import read_port_ranges\n"
        "from tests.faults.machines import a_plan\n"
        "sysctl = Path('/proc/sys/net/ipv4')\n"
        "(sysctl / 'ip_local_port_range').write_text('20000 29999')\n"
        "(sysctl / 'ip_local_reserved_ports').write_text('29500,29510-29520')\n"
        "(sysctl / 'ip_unprivileged_port_start').write_text('80')\n"
        "print(read_port_ranges(a_plan()))\n"
    )
    assert run_python(code, inside=["unshare", "--net"]).strip() == (
        "PortRanges(ephemeral_low=20000, ephemeral_high=29999, "
        "reserved=((29500, 29500), (29510, 29520)), first_unprivileged=80)"
    )


def test_the_port_ranges_of_this_machine() -> None:
    ranges = read_port_ranges(a_plan())
    with socket.create_server(("127.0.0.1", 0)) as server:
        chosen = server.getsockname()[1]
    assert ranges.ephemeral_low <= chosen <= ranges.ephemeral_high


@given(st.lists(st.tuples(st.integers(1, 65535), st.integers(1, 65535)).map(sorted)))
def test_ranges_come_back_as_the_kernel_prints_them(ranges: list[list[int]]) -> None:
    printed = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)
    assert parse_ranges(printed + "\n") == tuple((a, b) for a, b in ranges)
