"""A node's part in a trial, over real sockets."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from holdfast.analysis.nodes import Outcome
from holdfast.nodes.probing.messages import (
    OpenedListeners,
    OpenListeners,
    ProbeReply,
    TriedPaths,
    TryPaths,
)
from holdfast.nodes.probing.station import ProbeStation

KEY = bytes(32)


@pytest.fixture
def station() -> Iterator[Callable[[], ProbeStation]]:
    with contextlib.ExitStack() as stack:

        def made() -> ProbeStation:
            one = ProbeStation()
            stack.callback(one.close)
            return one

        yield made


def reply(station: ProbeStation, *, seconds: float = 30) -> ProbeReply:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := station.replies():
            return found[0]
        time.sleep(0.01)
    raise AssertionError("no reply")


def test_two_nodes_try_the_path_between_them(station: Callable[[], ProbeStation]) -> None:
    a, b = station(), station()
    b.ask(
        OpenListeners(trial=7, node="b", addresses=(("lo", "127.0.0.1"),), master_port=0, key=KEY)
    )
    opened = reply(b)
    assert isinstance(opened, OpenedListeners)
    a.ask(
        TryPaths(
            trial=7,
            node="a",
            targets=opened.listening.targets,
            in_depth=(),
            key=KEY,
            seconds=20,
        )
    )
    tried = reply(a)

    assert isinstance(tried, TriedPaths)
    assert (opened.trial, tried.trial) == (7, 7)
    assert [(one.target.node, one.outcome) for one in tried.reach] == [("b", Outcome.OK)]


def test_nothing_listens_after_its_end(station: Callable[[], ProbeStation]) -> None:
    b = station()
    b.ask(OpenListeners(node="b", addresses=(("lo", "127.0.0.1"),), master_port=0, key=KEY))
    opened = reply(b)
    assert isinstance(opened, OpenedListeners)
    (target,) = opened.listening.targets
    socket.create_connection((target.address, target.port), 10).close()
    b.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((target.address, target.port), 10)
