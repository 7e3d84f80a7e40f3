"""Peers that lie, stall or flood: they change nothing, end in time, and keep no node out."""

from __future__ import annotations

import asyncio
import collections
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from holdfast.nodes import frames
from holdfast.nodes import listener as listener_module
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import (
    BadMessage,
    ChannelClosed,
    ChannelError,
    CouldNotJoin,
    NotHoldfast,
    WrongToken,
    WrongVersion,
)
from holdfast.nodes.handshake import Greeting, Proof, Side
from holdfast.nodes.listener import Listener
from tests.nodes.conversation import (
    LONG,
    Ask,
    answer_all,
    coordinator,
    member,
    play,
    still_serves,
    until,
)
from tests.nodes.wire import RawPeer, connected, fake_coordinator, framed, opening, tapped

pytestmark = pytest.mark.xdist_group("nodes-hostile")

Attack = Callable[[RawPeer], Coroutine[Any, Any, object]]


async def one_byte_at_a_time(peer: RawPeer) -> None:
    for byte in opening():
        await peer.send(bytes([byte]))
        await asyncio.sleep(0.05)


async def closes_in_the_middle(peer: RawPeer) -> None:
    await peer.send(opening()[:-10])
    peer.writer.write_eof()


async def answers_with_its_own_words(peer: RawPeer) -> None:
    """An echo, as of a terminal or a reflector."""
    await peer.send(opening())
    await peer.reader.readexactly(len(Side.COORDINATOR.preamble))
    await peer.send(framed(await peer.read_frame()))


async def guesses_the_proof(peer: RawPeer) -> None:
    await peer.send(opening() + framed(Proof(bytes(32))))


async def keeps_on_sending(peer: RawPeer) -> None:
    for _ in range(50):
        await peer.send(b"\x00" * 65536)


def sends(data: bytes) -> Attack:
    async def attack(peer: RawPeer) -> None:
        await peer.send(data)

    return attack


ATTACKS: dict[str, Attack] = {
    "nothing": sends(b""),
    "HTTP": sends(b"GET / HTTP/1.1\r\nHost: node-0\r\n\r\n"),
    "a torch store's client": sends(b"\x00\x3c\x85\xf7\xf3\x00" + bytes(12)),
    "zeros for ever": keeps_on_sending,
    "its preamble only": sends(Side.MEMBER.preamble),
    "the other side's preamble": sends(opening(Side.COORDINATOR)),
    "an oversized length": sends(Side.MEMBER.preamble + b"\xff\xff\xff\xff\x01"),
    "a length just over the limit": sends(
        Side.MEMBER.preamble + frames.HEADER.pack(frames.LARGEST_HELLO + 1, 1) + bytes(5000)
    ),
    "a greeting of nothing": sends(Side.MEMBER.preamble + framed(b"")),
    "a greeting that is no msgpack": sends(Side.MEMBER.preamble + framed(b"\xc1" * 40)),
    "a greeting nested deep": sends(Side.MEMBER.preamble + framed(b"\x91" * 2000)),
    "a greeting with escape codes": sends(opening(node="\x1b[2J")),
    "a greeting with a long name": sends(opening(node="n" * 1000)),
    "a short nonce": sends(opening(nonce=b"1")),
    "a message before its greeting": sends(Side.MEMBER.preamble + framed(Ask(1))),
    "a message before its proof": sends(opening() + framed(Ask(1))),
    "one byte at a time": one_byte_at_a_time,
    "a stall after hello": sends(opening()),
    "half a greeting, then an end": closes_in_the_middle,
    "an echo": answers_with_its_own_words,
    "a guessed proof": guesses_the_proof,
}


@pytest.fixture
def short_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "HANDSHAKE_SECONDS", 1.0)


@pytest.mark.usefixtures("short_handshake")
def test_attacks_at_once_serve_nothing_and_end_while_a_node_gets_in() -> None:
    served: list[str] = []

    async def serve(channel: Channel) -> None:
        served.append(channel.node)
        await answer_all(channel)

    async def under(listener: Listener, attack: Attack) -> None:
        async with connected(listener) as peer:
            attacking = asyncio.ensure_future(attack(peer))
            await asyncio.wait({attacking}, timeout=0.5)
            await peer.ended()
            attacking.cancel()

    async def scene() -> None:
        async with coordinator(serve) as listener:
            attacks = asyncio.gather(*(under(listener, attack) for attack in ATTACKS.values()))
            await still_serves(listener)
            await attacks
            await until(lambda: listener.strangers + len(listener.turned_away) == len(ATTACKS))
            await still_serves(listener)
            (named,) = listener.turned_away  # the only one that kept to the protocol
            assert isinstance(named, WrongToken)
            assert "by-hand (127.0.0.1:" in named.sentence

    play(scene())
    assert served == ["late-but-honest"] * 2


def test_a_recorded_conversation_opens_no_second_connection() -> None:
    async def scene() -> None:
        async with coordinator() as listener:
            async with tapped(listener) as (through, tap):
                await still_serves(through)
            assert tap.from_member.startswith(Side.MEMBER.preamble)
            async with connected(listener) as peer:
                await peer.send(bytes(tap.from_member))
                await peer.ended()
            await until(lambda: listener.turned_away)
            assert isinstance(listener.turned_away[0], WrongToken)

    play(scene())


def test_a_recorded_coordinator_deceives_no_member() -> None:
    async def scene() -> None:
        async with coordinator() as listener, tapped(listener) as (through, tap):
            await still_serves(through)

        async def replay(peer: RawPeer) -> None:
            await peer.send(bytes(tap.from_coordinator))
            await peer.ended()

        async with fake_coordinator(replay) as fake:
            with pytest.raises(WrongToken):
                await member(fake)

    play(scene())


def test_a_proof_that_is_sent_back_proves_nothing() -> None:
    async def reflect(peer: RawPeer) -> None:
        await peer.send(opening(Side.COORDINATOR))
        await peer.reader.readexactly(len(Side.MEMBER.preamble))
        await peer.read_frame()
        await peer.send(framed(await peer.read_frame()))
        await peer.ended()

    async def scene() -> None:
        async with fake_coordinator(reflect) as fake:
            with pytest.raises(WrongToken, match=r"by-hand \(127.0.0.1:\d+\) has another token"):
                await member(fake)

    play(scene())


def test_frames_changed_between_two_nodes_are_noticed() -> None:
    """A machine in between that waits for the proofs, then speaks in the member's name."""

    def forge(sent: bytes) -> bytes:
        return sent.replace(b"harmless", b"harmful!")

    async def scene() -> None:
        problems: list[ChannelError] = []

        async def serve(channel: Channel) -> None:
            try:
                await channel.receive(seconds=LONG)
            except ChannelError as problem:
                problems.append(problem)

        async with coordinator(serve) as listener, tapped(listener, up=forge) as (through, _):
            channel = await member(through)
            await channel.send(Ask(1, "harmless"))
            await until(lambda: problems)
            await channel.close()
        assert isinstance(problems[0], BadMessage)
        assert "was changed on its way" in problems[0].sentence

    play(scene())


@pytest.mark.parametrize("version", [0, 2, 255])
def test_a_member_of_another_version_is_named_to_both_sides(version: int) -> None:
    async def scene() -> None:
        async with coordinator() as listener:
            async with connected(listener) as peer:
                await peer.send(opening(version=version, protocol=version, holdfast="9.4"))
                await peer.reader.readexactly(len(Side.COORDINATOR.preamble))
                ours = msgspec.msgpack.decode(await peer.read_frame(), type=Greeting)
                assert (ours.protocol, ours.node) == (frames.PROTOCOL, "node-0")
                assert await peer.ended() == b""
            await until(lambda: listener.turned_away)
            (named,) = listener.turned_away
            assert isinstance(named, WrongVersion)
            assert f"runs holdfast 9.4 (protocol {version}), this node speaks" in named.sentence
            await still_serves(listener)

    play(scene())


def test_a_coordinator_of_another_version_is_named() -> None:
    async def newer(peer: RawPeer) -> None:
        await peer.send(opening(Side.COORDINATOR, version=2, protocol=2, holdfast="9.4"))
        await peer.ended()

    async def scene() -> None:
        async with fake_coordinator(newer) as fake:
            with pytest.raises(WrongVersion, match=r"by-hand .* runs holdfast 9.4 \(protocol 2\)"):
                await member(fake)

    play(scene())


def test_something_else_at_that_port_is_quoted() -> None:
    async def sshd(peer: RawPeer) -> None:
        await peer.send(b"SSH-2.0-OpenSSH_9.2\x1b[31m\r\n")
        await peer.ended()

    async def scene() -> None:
        async with fake_coordinator(sshd) as fake:
            with pytest.raises(NotHoldfast) as caught:
                await member(fake)
            assert caught.value.sentence.endswith("it sent: SSH-2.0-OpenSSH_9.2 [31m")
            assert f":{fake.port}" in caught.value.hint

    play(scene())


def test_something_that_never_answers_costs_no_more_than_the_deadline() -> None:
    async def silent(peer: RawPeer) -> None:
        await peer.ended()

    async def scene() -> None:
        async with fake_coordinator(silent) as fake:
            with pytest.raises(CouldNotJoin, match="did not complete the handshake"):
                await member(fake, seconds=0.5)

    play(scene())


def test_a_coordinator_that_closes_is_tried_again() -> None:
    tries = 0

    async def slams(peer: RawPeer) -> None:
        nonlocal tries
        tries += 1

    async def scene() -> None:
        async with fake_coordinator(slams) as fake:
            with pytest.raises(CouldNotJoin, match=r"closed the connection before|is gone"):
                await member(fake, seconds=0.5)

    play(scene())
    assert tries > 1


@pytest.mark.parametrize("source", ["127.0.0.1", "127.0.0.2"])
def test_a_flood_keeps_no_node_out(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of connections that never say a word, from the node's own address and from another.
    Only so many are kept; the handshake's deadline has no part in it.
    """
    monkeypatch.setattr(listener_module, "HANDSHAKE_SECONDS", 10 * LONG)

    async def flood(port: int, opened: list[int]) -> None:
        held: collections.deque[socket.socket] = collections.deque(maxlen=350)
        loop = asyncio.get_running_loop()
        try:
            while True:
                one = socket.socket()
                one.setblocking(False)
                if len(held) == held.maxlen:
                    held[0].close()
                held.append(one)
                one.bind((source, 0))
                await loop.sock_connect(one, ("127.0.0.1", port))
                opened.append(1)
        finally:
            for one in held:
                one.close()

    async def scene() -> None:
        opened: list[int] = []
        async with coordinator() as listener:
            flooding = asyncio.ensure_future(flood(listener.port, opened))
            for count in (300, 1000, 2000):
                await until(lambda count=count: len(opened) > count)  # type: ignore[misc]
                await still_serves(listener)
            assert not flooding.done()
            held_by_flood = 350
            await until(lambda: listener.strangers > len(opened) - held_by_flood + 50)
            flooding.cancel()
            await asyncio.gather(flooding, return_exceptions=True)

    play(scene())


def test_a_peer_that_leaves_in_the_middle_of_a_message_is_told_apart() -> None:
    async def scene() -> None:
        problems: list[ChannelError] = []

        async def serve(channel: Channel) -> None:
            try:
                await channel.receive(seconds=LONG)
            except ChannelError as problem:
                problems.append(problem)

        def cut(sent: bytes) -> bytes:
            where = sent.find(b"half")
            return sent if where < 0 else sent[:where]

        async with coordinator(serve) as listener, tapped(listener, up=cut) as (through, _):
            channel = await member(through)
            await channel.send(Ask(1, "half"))
            await channel.close()
            await until(lambda: problems)
        assert isinstance(problems[0], ChannelClosed)
        assert "in the middle of a message" in problems[0].sentence

    play(scene())
