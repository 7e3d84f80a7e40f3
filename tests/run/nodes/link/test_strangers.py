"""Datagrams and messages of whoever does not keep to the rules, over real sockets."""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.job.run_paths import RUN_ID
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelError
from holdfast.nodes.handshake import Introduction, Side
from holdfast.nodes.join import join
from holdfast.nodes.token import fresh_token
from holdfast.run.nodes.link.beat import SIZE, BeatKey, LinkBeat, stream_name
from holdfast.run.nodes.link.coordinator_link import ListeningLink
from holdfast.run.nodes.link.interface import NodeClosed, NodeJoined
from holdfast.run.nodes.link.report_codec import ReportUpdate
from holdfast.run.nodes.link.wire_messages import (
    FromCoordinator,
    Hello,
    LinkEnds,
    Pulse,
    Resume,
    Said,
    Welcome,
)
from holdfast.run.nodes.messages import Ready
from holdfast.run.runs.folder import new_id
from tests.run.nodes.link.pair import LONG, TOKEN, NewsOf, a_card, coordinating, joined, until

STREAM = bytes(range(16))


def key(side: Side = Side.MEMBER, **changes: Any) -> BeatKey:
    return BeatKey(**{"token": TOKEN, "stream": STREAM, "sender": side, **changes})


def test_a_beat_is_opened_once_and_only_by_its_own_key() -> None:
    raw = key().pack(7, 3)
    assert len(raw) == SIZE
    assert stream_name(raw) == STREAM[:8]
    opener = key()
    assert opener.open(raw) == LinkBeat(7, 3)
    assert opener.open(raw) is None
    assert opener.open(key().pack(6, 3)) is None
    assert opener.open(key().pack(8, 3)) == LinkBeat(8, 3)
    others = (key(Side.COORDINATOR), key(token=fresh_token()), key(stream=STREAM[:-1] + b"x"))
    assert [other.open(raw) for other in others] == [None] * 3


@given(st.data())
def test_no_changed_beat_is_opened(data: st.DataObject) -> None:
    raw = bytearray(key().pack(7, 3))
    at = data.draw(st.integers(0, SIZE - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    assert key().open(bytes(raw)) is None
    assert key().open(data.draw(st.binary(max_size=2 * SIZE))) is None


def test_a_strangers_datagram_gets_no_answer_and_changes_nothing() -> None:
    with coordinating() as here, joined(here.port) as there:
        member = until(lambda: here._names.get("b"))
        until(lambda: member.beats_to)
        before = member.beats_to
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.settimeout(0.7)
            far = BeatKey(fresh_token(), member.stream, Side.MEMBER)
            for raw in (b"", b"x", secrets.token_bytes(SIZE), far.pack(10**6, 0), b"x" * 9000):
                stranger.sendto(raw, ("127.0.0.1", here.port))
            with pytest.raises(TimeoutError):
                stranger.recv(100)
        assert member.beats_to == before
        assert member.confirmed < 10**6
        assert there.lost() is None


def said_to(here: ListeningLink, *messages: Any) -> list[Any]:
    """What the coordinator answers to a peer that knows the token and says these."""

    async def talk() -> list[Any]:
        me = Introduction(node="by-hand")
        channel = await join(
            "127.0.0.1", here.port, token=TOKEN, understands=FromCoordinator, me=me, seconds=LONG
        )
        answers = []
        try:
            for message in messages:
                await _send(channel, message)
            while True:
                answers.append(await channel.receive(seconds=LONG))
        except ChannelError:
            return answers
        finally:
            await channel.close()

    return asyncio.run(talk())


async def _send(channel: Channel, message: Any) -> None:
    raw = message if isinstance(message, bytes) else msgspec.msgpack.encode(message)
    await channel._stream.write(raw, seconds=LONG)


def a_hello(name: str) -> Hello:
    return Hello(a_card(name))


DEEP = b"\x91" * 5000
BAD = {
    "a report without a beginning": Said(1, ReportUpdate(at=1.0, bound=0.0, ranks=())),
    "a gap": Said(2, Ready(after=0)),
    "a number below none": msgspec.msgpack.encode(["Said", -1, {"type": "Ready", "after": 0}]),
    "a second hello": a_hello("z"),
    "no message at all": b"\xc1\xff",
    "nested deep": DEEP,
    "another type": msgspec.msgpack.encode(["EndRound", 1]),
    "a huge number": msgspec.msgpack.encode(["Pulse", 2**63, 0, 0]),
}


def test_a_bad_message_ends_that_channel_with_a_sentence_and_nothing_else() -> None:
    with coordinating() as here, joined(here.port, card=a_card("honest")) as honest:
        news = NewsOf(here)
        for number, (kind, bad) in enumerate(BAD.items()):
            answers = said_to(here, a_hello(f"bad-{number}"), bad)
            assert isinstance(answers[0], Welcome), kind
            heard = here.heard()[f"bad-{number}"]
            assert (heard.hearing, heard.farewell) == ("lost", "closed"), kind
            assert "127.0.0.1:" in heard.words, kind
        until(lambda: len(news.of(NodeClosed)) == len(BAD))
        assert not [one for one in news.of(NodeClosed) if one.node == "honest"]
        assert here.heard()["honest"].hearing == "heard"
        honest.send(Ready(after=9))
        until(lambda: news.said("honest"))


def test_who_begins_without_a_hello_is_hung_up_on() -> None:
    with coordinating() as here:
        assert said_to(here, Pulse(1, 0, 0)) == []
        (answer,) = said_to(here, Resume(a_card(), STREAM, 0))
        assert isinstance(answer, LinkEnds)
        assert answer.why == "this node was given up: it is not known here"
        assert here.heard() == {}
        assert here.news() == []


def test_a_node_that_does_not_read_is_given_up_and_blocks_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.run.nodes.link.outbox.MOST", 50)
    with coordinating() as here, joined(here.port, card=a_card("honest")) as honest:
        news = NewsOf(here)

        async def deaf() -> None:
            me = Introduction(node="deaf")
            channel = await join(
                "127.0.0.1", here.port, token=TOKEN, understands=FromCoordinator, me=me, seconds=5
            )
            await channel.send(a_hello("deaf"))
            until(lambda: len(news.of(NodeJoined)) == 2)
            began = time.monotonic()
            for number in range(60):
                here.send("deaf", Ready(after=number))  # type: ignore[arg-type]
            assert time.monotonic() - began < 5.0
            until(lambda: here.heard()["deaf"].hearing == "lost")
            await channel.close()

        asyncio.run(deaf())
        assert here.heard()["deaf"].words == "it did not read what was sent to it"
        assert here.heard()["honest"].hearing == "heard"
        assert honest.lost() is None


@pytest.mark.parametrize(
    "run", ["../../elsewhere", "/tmp/elsewhere", "..", ".hidden", "a/b", "a\n"]
)
def test_a_coordinator_cannot_name_a_run_by_a_path(run: str) -> None:
    """Launchers make a folder of that name, with what is secret in it."""
    with coordinating(run=run) as here, pytest.raises(ChannelError), joined(here.port):
        pass


def test_new_ids_are_ids() -> None:
    assert re.match(RUN_ID, new_id("/x/train some thing.py"))
