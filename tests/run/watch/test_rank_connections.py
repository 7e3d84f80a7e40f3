"""The connections of real processes, as the kernel lists them; broken paths are in
tests/run/nodes/test_broken_paths.py."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.node_view import RankConnection
from holdfast.run.watch.rank_connections import MOST, RankConnections, _remember
from holdfast.system.inet_diag import TcpConnection
from tests.system.sockets import run_python, wait_for

THERE, ELSEWHERE = "127.0.0.2", "127.0.0.3"
NODES = {THERE: "node-b"}


@contextmanager
def connected(address: str, count: int = 1) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    with socket.create_server((address, 0), backlog=count) as server:
        pairs = []
        for _ in range(count):
            client = socket.create_connection(server.getsockname())
            pairs.append((client, server.accept()[0]))
        yield pairs
        for pair in pairs:
            for one in pair:
                one.close()


def seen(looker: RankConnections, pids: dict[int, int], at: float) -> tuple[RankConnection, ...]:
    answer = looker.look(pids, NODES, at)
    assert not isinstance(answer, Unread), answer.why
    return answer


def test_only_connections_of_ranks_to_other_nodes_are_told() -> None:
    looker = RankConnections()
    with connected(THERE, 3) as pairs, connected(ELSEWHERE):
        first = seen(looker, {7: os.getpid()}, 0.0)
        # Both ends are ours here: only those whose other end is at that node's address count.
        assert [(one.rank, one.node, one.peer) for one in first] == [(7, "node-b", THERE)]
        assert (first[0].peer_port, first[0].backoff, first[0].sent) == (0, 0, 0)
        for client, accepted in pairs:
            client.sendall(b"x" * 100)
            assert accepted.recv(100, socket.MSG_WAITALL)
        (after,) = seen(looker, {7: os.getpid()}, 100.0)
        assert (after.sent, after.retransmitted, after.unanswered) == (3, 0, 0.0)
        assert after.arrived >= 3  # the acknowledgements
        assert seen(looker, {7: 1 << 22}, 200.0) == ()  # no such process


def test_a_childs_connections_belong_to_its_rank() -> None:
    script = (
        "import socket, sys; server = socket.create_server((sys.argv[1], 0)); "
        "c = socket.create_connection(server.getsockname()); print(flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, THERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        child.stdout.readline()
        (found,) = seen(RankConnections(), {4: os.getpid()}, 0.0)
        assert found.rank == 4
        child.kill()


def test_a_new_connection_is_found_by_a_later_look() -> None:
    looker = RankConnections()
    assert seen(looker, {0: os.getpid()}, 0.0) == ()
    with connected(THERE):
        assert len(seen(looker, {0: os.getpid()}, 100.0)) == 1
    wait_for(lambda: seen(looker, {0: os.getpid()}, time.monotonic() + 1e6) == ())


def test_a_kernel_that_will_not_tell_is_a_gap_and_no_error() -> None:
    code = (
        "import json, os, resource\n"
        "from holdfast.run.watch.rank_connections import RankConnections\n"
        "looker = RankConnections()\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))\n"
        "print(json.dumps(looker.look({0: os.getpid()}, {}, 0.0).why))\n"
    )
    assert "the kernel does not list connections" in json.loads(run_python(code))


def a_socket(**changes: object) -> TcpConnection:
    zero: dict[str, object] = dict.fromkeys(TcpConnection._fields, 0)
    return TcpConnection(**{**zero, "inode": 9, **changes})  # type: ignore[arg-type]


@given(first=st.floats(0.2, 3.0), silence=st.floats(0.0, 300.0), look=st.floats(0.5, 3.0))
def test_silence_is_never_overstated(first: float, silence: float, look: float) -> None:
    """From the kernel's numbers alone: the timer starts at `first` and doubles each time."""
    before, at, told = None, 0.0, 0.0
    while at < silence:
        at = min(at + look, silence)
        backoff = sum(first * (2**n - 1) <= at for n in range(1, 16))
        one = a_socket(backoff=backoff, timer=first * 2**backoff, acked=5)
        before = _remember(one, before, 1000.0 + at)
        told = 1000.0 + at - before.stuck_since if before.stuck_since else 0.0
        assert told <= at + 1e-6
    if silence > 8 * first + look:
        assert told >= silence - 2 * first - look


@pytest.mark.parametrize("count", [MOST + 5])
def test_many_that_are_well_are_one(count: int) -> None:
    with connected(THERE, count):
        assert len(seen(RankConnections(), {0: os.getpid()}, 0.0)) == 1
