"""Failed connections: who called whom, and how it ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.logs.patterns import connections
from tests.analysis.logs.patterns.made import wreckage

TOLD = [
    (
        "socketStartConnect: Connect to 192.0.2.7<43210> failed : Software caused connection abort",
        (connections.NCCL, "192.0.2.7", 43210, connections.MASKED),
    ),
    (
        (
            "NCCL INFO ncclOsSocketPollConnect: connect to 192.0.2.7<43210> returned No route to "
            "host, retrying (3/34) after sleep for 300 msec"
        ),
        (connections.NCCL, "192.0.2.7", 43210, connections.NO_WAY),
    ),
    (
        "socketPollConnect: Connect to fe80::1%eth0<43210> returned 111(Connection refused)",
        (connections.NCCL, "fe80::1%eth0", 43210, connections.REFUSED),
    ),
    (
        "NCCL WARN Call to connect timeout : Connection timed out",
        (connections.NCCL, "", None, connections.SILENT),
    ),
    (
        "socketPollConnect: exceeded retries (20000)",
        (connections.NCCL, "", None, connections.REFUSED),
    ),
    (
        (
            "ERROR failed to connect, willRetry=1, retry=0, retryLimit=3, rank=1, size=2, "
            "local=[127.0.0.1]:53814, remote=[127.0.0.1]:41817, error=SO_ERROR: Connection "
            "refused, remote=[127.0.0.1]:41817$1"
        ),
        (connections.GLOO, "127.0.0.1", 41817, connections.REFUSED),
    ),
    (
        "gloo/transport/tcp/pair.cc:799] connect [192.0.2.7]:40001: Connection refused",
        (connections.GLOO, "192.0.2.7", 40001, connections.REFUSED),
    ),
    (
        "pair.cc:227] Connect timeout [192.0.2.7]:40001",
        (connections.GLOO, "192.0.2.7", None, connections.SILENT),
    ),
    (
        (
            "The client socket has failed to connect to [node-a]:29500 (errno: 111 - Connection "
            "refused)."
        ),
        (connections.STORE, "node-a", 29500, connections.REFUSED),
    ),
    (
        (
            "The client socket has failed to connect to any network address of (node-a, 29500). "
            "The client socket has failed to connect to [node-a]:29500 (errno: 101 - Network is "
            "unreachable)."
        ),
        (connections.STORE, "node-a", 29500, connections.NO_WAY),
    ),
    (  # without IPv6 it says so once, and continues over IPv4
        (
            "The client socket has failed to connect to [node-a]:29500 (errno: 101 - Network is "
            "unreachable)."
        ),
        (connections.STORE, "node-a", 29500, ""),
    ),
    (
        "The client socket has timed out after 60s while trying to connect to (node-a, 29500).",
        (connections.STORE, "node-a", 29500, ""),
    ),
    (
        (
            "TCP client failed to connect/validate to host 192.0.2.7:29500 - retrying (try=2, "
            "timeout=600000ms, delay=4013ms): Connection reset by peer"
        ),
        (connections.STORE, "192.0.2.7", 29500, connections.REFUSED),
    ),
    (
        "The client socket has timed out after 60s while trying to connect to 192.0.2.7:1234",
        (connections.STORE, "192.0.2.7", 1234, ""),
    ),
    (
        "misc/socket.cc:504 -> 2 (Operation now in progress)",
        (connections.NCCL, "", None, connections.MASKED),
    ),
    (
        "Connect to x.x.x.x<xxxx> failed : No route to",
        (connections.NCCL, "x.x.x.x", None, connections.NO_WAY),
    ),
    ("RuntimeError: Connection timed out", (connections.STORE, "", None, connections.SILENT)),
]


@pytest.mark.parametrize(("line", "expected"), TOLD, ids=[line[:40] for line, _ in TOLD])
def test_is_read(line: str, expected: tuple[str, str, int | None, str]) -> None:
    found = connections.attempts(wreckage(line))
    assert [(a.layer, a.address, a.port, a.kind) for a in found] == [expected]


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: Connection reset by peer",  # the store died: no host was out of reach
        "requests.exceptions.ConnectionError: Connection refused",
        "The client socket has connected to [node-a]:29500 on SocketImpl(fd=3).",
    ],
)
def test_is_no_failed_connection(line: str) -> None:
    assert connections.attempts(wreckage(line)) == ()


def test_by_layer() -> None:
    both = wreckage("RuntimeError: Connection refused", "socketPollConnect: exceeded retries (3)")
    assert [a.layer for a in connections.attempts(both)] == [connections.STORE, connections.NCCL]
    assert [a.layer for a in connections.attempts(both, connections.NCCL)] == [connections.NCCL]


@given(start=st.sampled_from([line for line, _ in TOLD]), cut=st.integers(0, 200), tail=st.text())
def test_never_raises_on_what_is_left_of_a_line(start: str, cut: int, tail: str) -> None:
    for attempt in connections.attempts(wreckage(start[:cut] + tail)):
        assert attempt.layer
        assert attempt.port is None or 0 <= attempt.port < 100_000
        assert attempt.where


def test_the_most_telling_kind_leads() -> None:
    assert (
        connections.commonest([connections.REFUSED, connections.NO_WAY, ""]) == connections.NO_WAY
    )
    assert connections.commonest([connections.REFUSED, connections.SILENT]) == connections.SILENT
    assert connections.commonest([""]) == ""
