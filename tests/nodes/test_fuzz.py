"""Unplanned bytes: made up, half right, or a real conversation with something changed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.nodes import join as join_module
from holdfast.nodes import listener as listener_module
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import BadMessage, ChannelError
from holdfast.nodes.framed_stream import FramedStream
from holdfast.nodes.handshake import NotAdmitted, Proof, Side
from tests.nodes.conversation import (
    LONG,
    Answer,
    Ask,
    Messages,
    coordinator,
    member,
    play,
    still_serves,
    until,
)
from tests.nodes.wire import RawPeer, connected, fake_coordinator, framed, opening, tapped

pytestmark = pytest.mark.xdist_group("nodes-fuzz")

FEW = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
MANY = settings(FEW, max_examples=1000, derandomize=False)

PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text()
VALUES = st.recursive(
    PLAIN | st.binary(max_size=60),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=10,
)
BODIES = st.binary(max_size=200) | VALUES.map(msgspec.msgpack.encode)
FRAMES = st.builds(framed, BODIES, st.integers(0, 255)) | BODIES
OPENINGS = st.sampled_from(
    [
        b"",
        Side.MEMBER.preamble,
        Side.COORDINATOR.preamble,
        opening(),
        opening(Side.COORDINATOR),
        opening() + framed(Proof(bytes(32))),
        opening(Side.COORDINATOR) + framed(Proof(bytes(32))),
        opening(Side.COORDINATOR) + framed(NotAdmitted("no")),
    ]
)
SPEECHES = st.builds(lambda first, rest: first + b"".join(rest), OPENINGS, st.lists(FRAMES))


@pytest.fixture(autouse=True)
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "HANDSHAKE_SECONDS", 0.5)
    monkeypatch.setattr(join_module, "ONE_TRY", 0.5)


def no_made_up_peer_is_served(said: bytes, ends: bool) -> None:
    served: list[str] = []

    async def serve(channel: Channel) -> None:
        served.append(channel.node)
        await channel.send(Answer((await channel.receive(seconds=LONG)).number + 1))

    async def scene() -> None:
        async with coordinator(serve) as listener:
            async with connected(listener) as peer:
                await peer.send(said)
                if ends:
                    with contextlib.suppress(OSError):
                        peer.writer.write_eof()
                await peer.ended()
            await until(lambda: listener.strangers + len(listener.turned_away) == 1)
            await still_serves(listener)

    play(scene())
    assert served == ["late-but-honest"]


@FEW
@given(SPEECHES, st.just(value=True))
def test_no_made_up_peer_is_served(said: bytes, ends: bool) -> None:
    no_made_up_peer_is_served(said, ends)


@pytest.mark.long
@MANY
@given(SPEECHES, st.booleans())
def test_no_made_up_peer_is_served_at_length(said: bytes, ends: bool) -> None:
    no_made_up_peer_is_served(said, ends)


def no_made_up_coordinator_is_joined(said: bytes) -> None:
    async def speak(peer: RawPeer) -> None:
        await peer.send(said)
        with contextlib.suppress(OSError):
            peer.writer.write_eof()
        await peer.ended()

    async def scene() -> None:
        async with fake_coordinator(speak) as fake:
            with pytest.raises(ChannelError):
                await member(fake, seconds=0.05)

    play(scene())


@FEW
@given(SPEECHES)
def test_no_made_up_coordinator_is_joined(said: bytes) -> None:
    no_made_up_coordinator_is_joined(said)


@pytest.mark.long
@MANY
@given(SPEECHES)
def test_no_made_up_coordinator_is_joined_at_length(said: bytes) -> None:
    no_made_up_coordinator_is_joined(said)


class Damage(NamedTuple):
    """Something that happens to one direction of a real conversation."""

    upward: bool
    at: int
    cut: int
    put: bytes

    def done_to(self, sent: bytes) -> bytes:
        if len(sent) <= self.at:
            return sent
        return sent[: self.at] + self.put + sent[self.at + self.cut :]


DAMAGES = st.builds(
    Damage, st.booleans(), st.integers(0, 700), st.integers(0, 50), st.binary(max_size=50)
)
SAID = [Ask(n, "word" * n) for n in range(6)]


def what_is_heard_was_said(damage: Damage) -> None:
    """Bytes lost, added, changed or repeated: each side hears a beginning of what the other said,
    and then an error; never anything else.
    """
    heard: list[Ask] = []
    answers: list[Answer] = []

    async def listen(channel: Channel, into: list[Any]) -> None:
        with contextlib.suppress(ChannelError):
            while True:
                into.append(await channel.receive(seconds=0.2))

    async def serve(channel: Channel) -> None:
        for said in SAID:
            await channel.send(Answer(said.number, said.text))
        await listen(channel, heard)

    async def speak(through: Any) -> None:
        with contextlib.suppress(ChannelError):
            channel = await member(through, seconds=0.3)
            try:
                for said in SAID:
                    await channel.send(said)
                await listen(channel, answers)
            finally:
                await channel.close()

    async def scene() -> None:
        changes = {"up" if damage.upward else "down": damage.done_to}
        async with coordinator(serve) as listener, tapped(listener, **changes) as (through, _):
            await speak(through)

    play(scene())
    # A connection that was damaged may be followed by a whole one: the member tries again.
    for got, said in ((heard, SAID), (answers, [Answer(a.number, a.text) for a in SAID])):
        assert [msgspec.structs.astuple(one) for one in got] in (
            [msgspec.structs.astuple(one) for one in said[:count]] for count in range(7)
        )


@settings(FEW, max_examples=10)
@given(DAMAGES)
def test_what_is_heard_was_said(damage: Damage) -> None:
    what_is_heard_was_said(damage)


@pytest.mark.long
@settings(MANY, max_examples=500)
@given(DAMAGES)
def test_what_is_heard_was_said_at_length(damage: Damage) -> None:
    what_is_heard_was_said(damage)


class _Nowhere:
    """Stands for the way back, which a fuzzed reader never uses."""

    def abort(self) -> None:
        pass

    @property
    def transport(self) -> _Nowhere:
        return self


def messages_are_of_the_union_or_bad(body: bytes) -> None:
    """What a peer that knows the token may send: decoded into one of the types, or refused."""

    async def scene() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(framed(body))
        stream = FramedStream(reader, _Nowhere(), peer="b")  # type: ignore[arg-type]
        channel = Channel(stream, understands=Messages)
        try:
            got = await channel.receive(seconds=LONG)
        except BadMessage:
            return
        assert isinstance(got, (Ask, Answer))

    play(scene())


HALF_RIGHT = st.fixed_dictionaries(
    {"type": st.sampled_from(["Ask", "Answer", "Run"]) | VALUES},
    optional={"number": VALUES, "text": VALUES, "more": VALUES},
).map(msgspec.msgpack.encode)


@FEW
@given(BODIES | HALF_RIGHT)
def test_messages_are_of_the_union_or_bad(body: bytes) -> None:
    messages_are_of_the_union_or_bad(body)


@pytest.mark.long
@MANY
@given(BODIES | HALF_RIGHT)
def test_messages_are_of_the_union_or_bad_at_length(body: bytes) -> None:
    messages_are_of_the_union_or_bad(body)
