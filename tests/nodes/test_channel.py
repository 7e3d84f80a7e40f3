from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import Any

import pytest

from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import (
    BadMessage,
    CannotListen,
    ChannelClosed,
    ChannelError,
    ChannelTimeout,
    CouldNotJoin,
    Refused,
    WrongToken,
)
from holdfast.nodes.handshake import Greeting, Introduction
from holdfast.nodes.join import join
from holdfast.nodes.reach.meeting import EVERYWHERE
from holdfast.nodes.token import fresh_token, open_token
from tests.nodes.conversation import (
    LONG,
    TOKEN,
    Answer,
    Ask,
    coordinator,
    member,
    play,
    still_serves,
    until,
)

pytestmark = pytest.mark.xdist_group("nodes-channel")


def test_messages_go_both_ways_and_each_side_knows_the_others_name() -> None:
    async def scene() -> None:
        names: list[str] = []

        async def serve(channel: Channel) -> None:
            names.append(channel.node)
            asked = await channel.receive(seconds=LONG)
            await channel.send(Answer(asked.number * 2))

        async with coordinator(serve) as listener:
            channel = await member(listener, node="node-b")
            await channel.send(Ask(21))
            assert await channel.receive(seconds=LONG) == Answer(42)
            assert channel.node == "node-0"
            assert channel.peer == f"127.0.0.1:{listener.port}"
            await channel.close()
        assert names == ["node-b"]

    play(scene())


def test_a_path_that_is_no_text_is_sent_as_it_can_be_shown() -> None:
    async def scene() -> None:
        async with coordinator() as listener:
            channel = await member(listener)
            await channel.send(Ask(1, "/runs/\udcfc"))
            assert await channel.receive(seconds=LONG) == Answer(2, "/runs/\ufffd")
            await channel.close()

    play(scene())


def test_large_messages_and_many_at_once() -> None:
    async def scene() -> None:
        async with coordinator() as listener:
            channel = await member(listener)
            asked = [Ask(n, "x" * (n * 4000)) for n in range(100)]
            sending = asyncio.gather(*(channel.send(ask) for ask in asked))
            got = [await channel.receive(seconds=LONG) for _ in asked]
            await sending
            assert sorted(got, key=lambda one: one.number) == [
                Answer(ask.number + 1, ask.text) for ask in asked
            ]
            await channel.close()

    play(scene())


def test_a_receive_that_timed_out_loses_nothing() -> None:
    """Even when it was cut off between the head and the rest of a message."""

    async def scene() -> None:
        more = asyncio.Event()

        async def serve(channel: Channel) -> None:
            writer = channel._stream._writer
            write = writer.write

            def only_the_head(data: Any) -> None:
                write(data[:7])
                more_later.append(data[7:])

            more_later: list[bytes] = []
            writer.write = only_the_head  # type: ignore[method-assign]
            await channel.send(Answer(1))
            await more.wait()
            write(more_later[0])
            await channel.receive(seconds=LONG)

        async with coordinator(serve) as listener:
            channel = await member(listener)
            with pytest.raises(ChannelTimeout, match="sent nothing within"):
                await channel.receive(seconds=0.2)
            more.set()
            assert await channel.receive(seconds=LONG) == Answer(1)
            await channel.send(Ask(0))
            await channel.close()

    play(scene())


def test_a_peer_that_does_not_read_cannot_block_us() -> None:
    async def scene() -> None:
        done = asyncio.Event()

        async def serve(channel: Channel) -> None:
            await done.wait()

        async with coordinator(serve) as listener:
            channel = await member(listener)
            sending = asyncio.gather(
                *(channel.send(Ask(1, "x" * 1_000_000), seconds=0.3) for _ in range(40))
            )
            with pytest.raises(ChannelTimeout, match="did not read what was sent to it"):
                await sending
            with pytest.raises(ChannelTimeout):  # ended for good
                await channel.receive(seconds=LONG)
            await channel.close()
            done.set()

    play(scene())


def test_a_peer_that_hangs_up_is_named() -> None:
    async def scene() -> None:
        async def serve(channel: Channel) -> None:
            await channel.receive(seconds=LONG)

        async with coordinator(serve) as listener:
            channel = await member(listener)
            await channel.send(Ask(1))
            with pytest.raises(ChannelClosed, match=r"127.0.0.1:\d+ closed the connection"):
                await channel.receive(seconds=LONG)
            await channel.close()

    play(scene())


def test_a_message_of_another_type_ends_the_connection() -> None:
    class Command(Ask, tag=True, frozen=True):
        """not in the union"""

    async def scene() -> None:
        problems: list[ChannelError] = []

        async def serve(channel: Channel) -> None:
            with pytest.raises(BadMessage, match="does not understand: Invalid value 'Command'"):
                await channel.receive(seconds=LONG)
            with pytest.raises(BadMessage) as again:
                await channel.receive(seconds=LONG)
            problems.append(again.value)

        async with coordinator(serve) as listener:
            channel = await member(listener)
            await channel.send(Command(1))
            with pytest.raises(ChannelClosed):
                await channel.receive(seconds=LONG)
            await channel.close()
            await until(lambda: problems)

    play(scene())


def test_a_message_over_the_limit_is_refused_by_its_sender_and_its_receiver() -> None:
    async def scene() -> None:
        async with coordinator(limit=10_000) as listener:
            channel = await member(listener, limit=10_000)
            with pytest.raises(ChannelError, match=r"a message of .* over the limit of 9.77 KiB"):
                await channel.send(Ask(1, "x" * 10_000))
            await channel.send(Ask(1, "x" * 9_000))
            assert (await channel.receive(seconds=LONG)).number == 2
            await channel.close()
            channel = await member(listener)
            await channel.send(Ask(1, "x" * 10_000))
            with pytest.raises(ChannelClosed):
                await channel.receive(seconds=LONG)
            await channel.close()
            await still_serves(listener)

    play(scene())


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        (fresh_token(), TOKEN, "has another token"),
        (open_token("a:1"), TOKEN, "wants a token, and this node has none"),
        (TOKEN, open_token("a:1"), "came without a token, and this run wants one"),
        (open_token("b:1"), open_token("a:1"), "has another token"),
    ],
)
def test_a_wrong_token_is_told_to_both_sides(theirs: object, ours: object, said: str) -> None:
    async def scene() -> None:
        async with coordinator(token=ours) as listener:  # type: ignore[arg-type]
            with pytest.raises(WrongToken, match=said) as caught:
                await member(listener, token=theirs, node="node-x")  # type: ignore[arg-type]
            assert "HOLDFAST_TOKEN" in caught.value.hint
            await until(lambda: listener.turned_away)
            (noted,) = listener.turned_away
            assert isinstance(noted, WrongToken)
            assert "node-x (127.0.0.1:" in noted.sentence

    play(scene())


def test_a_node_that_is_not_admitted_hears_why() -> None:
    async def scene() -> None:
        def admit(hello: Greeting) -> str:
            return "" if hello.node == "late-but-honest" else "the check began 4 s ago"

        async with coordinator(admit=admit) as listener:
            with pytest.raises(Refused) as caught:
                await member(listener, node="node-b")
            assert caught.value.why == "the check began 4 s ago"
            assert "node-0" in caught.value.sentence
            await until(lambda: listener.turned_away)
            assert ["node-b" in one.sentence for one in listener.turned_away] == [True]
            await still_serves(listener)

    play(scene())


def test_a_node_of_another_run_is_turned_away() -> None:
    async def scene() -> None:
        async with coordinator(me=Introduction(node="node-0", run="job-7")) as listener:
            with pytest.raises(Refused, match="it belongs to run job-6, this is run job-7"):
                await member(listener, run="job-6")
            for run in ("job-7", ""):
                await (await member(listener, run=run)).close()

    play(scene())


def test_a_member_waits_for_a_coordinator_that_starts_later() -> None:
    async def scene() -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        joining = asyncio.ensure_future(
            join(
                "localhost",
                port,
                token=TOKEN,
                understands=Ask | Answer,
                me=Introduction(node="early"),
                seconds=LONG,
            )
        )
        await asyncio.sleep(0.3)
        assert not joining.done()
        async with coordinator(port=port):
            channel = await joining
            await channel.send(Ask(1))
            assert await channel.receive(seconds=LONG) == Answer(2)
            await channel.close()

    play(scene())


def test_without_a_coordinator_it_says_what_it_saw_last() -> None:
    async def scene() -> None:
        async with coordinator() as listener:
            pass
        with pytest.raises(CouldNotJoin, match=r"within 1 s \(tried \d+ times; last: .*refused"):
            await member(listener, seconds=1.0)
        with pytest.raises(CouldNotJoin, match="last: "):
            await member(listener, host="no-such-host.invalid", seconds=0.3)

    play(scene())


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_a_listener_binds_what_it_was_told_and_nothing_outlives_it() -> None:
    addresses = ("127.0.0.1", "127.0.0.5", *(["::1"] if has_ipv6() else []))

    async def scene() -> None:
        tasks = asyncio.all_tasks()
        async with coordinator(addresses=addresses) as listener:
            for host in addresses:
                await (await member(listener, host=host)).close()
            with pytest.raises(CouldNotJoin):
                await member(listener, host="127.0.0.6", seconds=0.2)
            with pytest.raises(CannotListen, match="Address already in use"):
                async with coordinator(port=listener.port):
                    pass
            channel = await member(listener)
        with pytest.raises(ChannelClosed):
            await channel.receive(seconds=LONG)
        await channel.close()
        assert asyncio.all_tasks() == tasks

    play(scene())


@pytest.mark.parametrize("why", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_it_listens_everywhere_on_a_kernel_without_ipv6(
    monkeypatch: pytest.MonkeyPatch, why: int
) -> None:
    class WithoutIpv6(socket.socket):
        def __init__(self, family: int = -1, *rest: Any, **named: Any) -> None:
            if family == socket.AF_INET6:
                raise OSError(why, os.strerror(why))
            super().__init__(family, *rest, **named)

    monkeypatch.setattr(socket, "socket", WithoutIpv6)

    async def scene() -> None:
        async with coordinator(addresses=EVERYWHERE) as listener:
            await (await member(listener, host="127.0.0.1")).close()
        with pytest.raises(CannotListen, match=os.strerror(why)):
            async with coordinator(addresses=("::",)):
                pass

    play(scene())


@pytest.mark.parametrize("option", [socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE])
def test_a_kernel_may_lack_an_option_of_sockets(
    monkeypatch: pytest.MonkeyPatch, option: int
) -> None:
    real = socket.socket.setsockopt

    def some(self: socket.socket, level: int, name: int, *value: Any) -> None:
        if (level, name) == (socket.IPPROTO_TCP, option):
            raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
        real(self, level, name, *value)

    monkeypatch.setattr(socket.socket, "setsockopt", some, raising=False)

    async def scene() -> None:
        async with coordinator() as listener:
            await (await member(listener, host="127.0.0.1")).close()

    play(scene())


def test_a_bug_in_serve_comes_out_of_the_listener() -> None:
    async def scene() -> None:
        async def serve(channel: Channel) -> None:
            raise LookupError("a bug")

        async with coordinator(serve) as listener:
            channel = await member(listener)
            with pytest.raises(ChannelClosed):
                await channel.receive(seconds=LONG)
            await channel.close()

    with pytest.raises(LookupError, match="a bug"):
        play(scene())
