"""Listeners and probes on loopback, where nothing is in the way; strangers at both ends."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from holdfast.analysis.nodes import Listening, Outcome, PortKind, Target
from holdfast.system.paths import (
    connection_server,
    losses,
    probe_listeners,
    reach,
    responder,
    sizes,
    wire,
)
from holdfast.system.paths import loss as loss_module
from holdfast.system.paths.attempts import first_to_end
from holdfast.system.paths.connect import ConnectFailed, ProbeConnection
from holdfast.system.paths.datagrams import DatagramSession
from tests.system.sockets import free_port, listener, run_python

KEY = os.urandom(32)
T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 30))


def ephemeral(up: Listening) -> list[Target]:
    return [target for target in up.targets if target.kind is PortKind.EPHEMERAL]


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_every_probe_finds_a_free_way_free(address: str) -> None:
    async def work() -> None:
        port = free_port()
        async with probe_listeners("b", [("lo", address)], port, key=KEY) as up:
            assert not up.left_out
            assert {target.kind for target in up.targets} == set(PortKind)
            reached = await reach("a", up.targets, key=KEY)
            assert [(one.outcome, one.error) for one in reached] == [(Outcome.OK, "")] * 2
            assert all(one.local_address == address for one in reached)
            (path,) = await sizes("a", ephemeral(up), key=KEY)
            assert all(probe.arrived for probe in (*path.datagrams, *path.messages)), path
            assert (path.interface, path.told_mtu) == ("lo", None)
            assert [probe.acknowledged for probe in path.messages] == [
                probe.bytes for probe in path.messages
            ]
            (loss,) = await losses("a", ephemeral(up), key=KEY, count=8)
            assert (loss.sent, loss.arrived, loss.answered, loss.error) == (8, 8, 8, "")
            assert loss.median_seconds is not None
            assert loss.fastest_seconds is not None
            assert 0 < loss.fastest_seconds <= loss.median_seconds

    run(work())


def test_listeners_end_with_their_block() -> None:
    async def work() -> tuple[Target, ...]:
        async with probe_listeners("b", [("lo", "127.0.0.1")], free_port(), key=KEY) as up:
            return up.targets

    targets = run(work())
    assert len(targets) == 2
    for target in targets:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_INET, kind) as again:
                again.bind((target.address, target.port))


def test_a_master_port_in_use_is_left_out_with_the_reason() -> None:
    async def work(port: int) -> Listening:
        async with probe_listeners("b", [("lo", "127.0.0.1")], port, key=KEY) as up:
            return up

    with listener("0.0.0.0") as taken:
        port = taken.getsockname()[1]
        up = run(work(port))
    (missing,) = up.left_out
    assert (missing.kind, missing.port, missing.address) == (PortKind.MASTER, port, "127.0.0.1")
    assert missing.why == "EADDRINUSE: Address already in use"
    assert [target.kind for target in up.targets] == [PortKind.EPHEMERAL]


def test_an_address_that_is_gone_is_left_out_with_the_reason() -> None:
    async def work() -> Listening:
        async with probe_listeners("b", [("e0", "192.0.2.7")], None, key=KEY) as up:
            return up

    up = run(work())
    assert not up.targets
    assert up.left_out[0].why.startswith("EADDRNOTAVAIL")


class Stranger(asyncio.Protocol):
    """Something else at the target's address: answers every hello with these bytes, or hangs up."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self.transport, asyncio.Transport)
        if self.answer:
            self.transport.write(self.answer)
        else:
            self.transport.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed without an answer"),
        (b"SSH-2.0-OpenSSH_9.2p1 Debian\r\n" + bytes(100), "not a listener of this check"),
        (b"\0" + bytes(200), "not a listener of this check"),
    ],
)
def test_a_stranger_at_the_address_is_told_from_the_target(answer: bytes, words: str) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Stranger(answer), "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            target = Target(
                node="lo", interface="lo", address="127.0.0.1", port=port, kind=PortKind.MASTER
            )
            reached = await _attempts_only(target)
        assert reached[0] is Outcome.STRANGER
        assert words in reached[1]

    run(work())


async def _attempts_only(target: Target) -> tuple[Outcome, str]:
    """On loopback the routing table would say first that the address is our own."""
    with ProbeConnection(target, KEY) as connection:
        await connection.connect()
        try:
            await connection.prove()
        except ConnectFailed as failure:
            return failure.outcome, failure.error
    return Outcome.OK, ""


@pytest.mark.parametrize(
    ("node", "key", "words"),
    [("c", KEY, "node c answered"), ("b", b"another check", "closed without an answer")],
    ids=["node", "check"],
)
def test_another_node_or_another_check_is_not_the_target(
    node: str, key: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_module, "QUESTIONS", 2)
    monkeypatch.setattr(loss_module, "LATE", 0.1)

    async def work() -> None:
        async with probe_listeners(node, [("lo", "127.0.0.1")], None, key=key) as up:
            (target,) = up.targets
            target = Target(
                node="b",
                interface="lo",
                address="127.0.0.1",
                port=target.port,
                kind=PortKind.EPHEMERAL,
            )
            outcome, error = await _attempts_only(target)
            assert (outcome, words in error) == (Outcome.STRANGER, True), error
            (loss,) = await losses("a", [target], key=KEY, count=2)
            assert (loss.sent, loss.arrived, loss.answered) == (2, None, 0)

    run(work())


def test_strangers_bytes_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage, silence and floods while a probe of ours goes through all the same."""
    monkeypatch.setattr(connection_server, "HELLO_SECONDS", 0.2)

    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with probe_listeners("b", [("lo", "127.0.0.1")], None, key=KEY) as up:
            (target,) = up.targets
            spot = (target.address, target.port)
            silent = [socket.create_connection(spot) for _ in range(20)]
            for packed in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(wire.HELLO_BYTES)):
                with socket.create_connection(spot) as rude:
                    rude.setblocking(False)
                    await loop.sock_sendall(rude, packed)
                    rude.shutdown(socket.SHUT_WR)
                    assert await loop.sock_recv(rude, 1) == b"", "an answer to a stranger"
            with socket.socket(type=socket.SOCK_DGRAM) as flood:
                flood.setblocking(False)
                flood.connect(spot)
                for size in (0, 1, wire.DATAGRAM_BYTES, 1400, 60000):
                    flood.send(os.urandom(size))
                (loss,) = await losses("a", [target], key=KEY, count=4)
                assert loss.arrived == 4
                with pytest.raises(BlockingIOError):
                    flood.recv(100)
            (reached,) = await reach("a", [target], key=KEY)
            assert reached.outcome is Outcome.OK
            for one in silent:
                one.setblocking(False)
                assert await loop.sock_recv(one, 1) == b"", "a silent one must be hung up on"
                one.close()

    run(work())


def test_no_room_is_left_for_the_idle_when_it_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_server, "YOUNG", 0.1)

    async def work() -> None:
        async with probe_listeners("b", [("lo", "127.0.0.1")], None, key=KEY) as up:
            (target,) = up.targets
            idle = [socket.create_connection((target.address, target.port)) for _ in range(600)]
            (reached,) = await reach("a", [target], key=KEY)
            for one in idle:
                one.close()
            assert reached.outcome is Outcome.OK

    run(work())


def test_what_the_targets_own_queue_drops_is_not_lost_on_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All at once while the responder does not get to run: more than its queue takes."""
    monkeypatch.setattr(responder, "ROOM", 1 << 17)

    async def work() -> None:
        async with probe_listeners("b", [("lo", "127.0.0.1")], None, key=KEY) as up:
            with DatagramSession(up.targets[0], KEY) as session:
                for number in range(30):
                    session.send(number, 60_000)
                session.send(wire.ASK_SEEN)
                await session.wait(lambda: wire.ASK_SEEN in session.round_trips, 0.5)
                while wire.ASK_SEEN not in session.round_trips:  # that one was dropped as well
                    session.send(wire.ASK_SEEN)
                    await session.wait(lambda: wire.ASK_SEEN in session.round_trips, 0.1)
                assert 0 < session.seen.bit_count() < 30
                assert session.seen.bit_count() + session.overflowed >= 30
            (loss,) = await losses("a", up.targets, key=KEY, count=4)
            assert (loss.arrived, loss.answered) == (4, 4), "a new session counts afresh"

    run(work())


def test_time_in_which_we_did_not_run_does_not_count() -> None:
    async def steps() -> str:
        for _ in range(3):
            await asyncio.sleep(0.02)
        return "done"

    async def work(blocked: float) -> list[str]:
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, time.sleep, blocked)
        end = time.monotonic() + 0.4
        return await first_to_end(steps, gap=0.1, until=lambda: end, another=lambda: False)

    async def never() -> str:
        await asyncio.Event().wait()
        return "never"

    async def in_vain() -> list[str]:
        end = time.monotonic() + 0.1
        return await first_to_end(never, gap=0.03, until=lambda: end, another=lambda: True)

    assert run(work(1.0)) == ["done"]
    assert run(in_vain()) == []


def test_a_low_limit_of_open_files_is_no_fault_of_the_paths() -> None:
    code = """
import asyncio, contextlib, resource
from holdfast.system.paths import losses, probe_listeners, reach, sizes
resource.setrlimit(resource.RLIMIT_NOFILE, (250, 250))
async def main():
    async with contextlib.AsyncExitStack() as stack:
        targets = []
        for n in range(40):
            at = [("lo", f"127.0.9.{n + 1}")]
            up = await stack.enter_async_context(probe_listeners(f"n{n}", at, None, key=b"k"))
            targets += up.targets
        reached = await reach("a", targets, key=b"k")
        paths = await sizes("a", targets, key=b"k")
        lost = await losses("a", targets, key=b"k", count=3)
    print({one.outcome.value for one in reached},
          {probe.arrived for path in paths for probe in path.datagrams + path.messages},
          {one.answered for one in lost})
asyncio.run(main())
"""
    assert run_python(code) == "{'ok'} {True} {3}\n"
