"""A machine that vanishes says nothing: its cables are out, or nothing passes any more."""

from __future__ import annotations

import concurrent.futures
import threading

import pytest

from holdfast.drill.lab import Host
from holdfast.nodes import keepalive
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelClosed, ChannelError
from tests.drill.lab.fixture import lab_or_skip
from tests.nodes.conversation import LONG, Answer, Ask, coordinator, member, play, until

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("nodes-lost-machine")]


def test_both_sides_learn_that_the_other_machine_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One waits for an answer (keepalive), the other has sent something (unacknowledged data)."""
    monkeypatch.setattr(keepalive, "IDLE_SECONDS", 1)
    monkeypatch.setattr(keepalive, "GONE_SECONDS", 3)
    problems: list[ChannelError] = []
    talking, cut = threading.Event(), threading.Event()

    async def serve(channel: Channel) -> None:
        try:
            while True:
                asked = await channel.receive(seconds=3 * LONG)
                await channel.send(Answer(asked.number + 1))
        except ChannelError as problem:
            problems.append(problem)

    async def scene(a: Host, b: Host) -> None:
        with a.inside():
            at_a = coordinator(serve, addresses=(a.address,))
            listener = await at_a.__aenter__()
        try:
            with b.inside():
                channel = await member(listener, host=a.address)
            await channel.send(Ask(1))
            assert await channel.receive(seconds=LONG) == Answer(2)
            talking.set()
            await until(cut.is_set)
            await channel.send(Ask(2))
            with pytest.raises(ChannelClosed, match="is gone: Connection timed out"):
                await channel.receive(seconds=3 * LONG)
            await until(lambda: problems)
            assert "is gone: Connection timed out" in problems[0].sentence
            await channel.close()
        finally:
            await at_a.__aexit__(None, None, None)

    # The lab has an event loop of its own and so cannot change while ours runs in this thread.
    with lab_or_skip() as lab, concurrent.futures.ThreadPoolExecutor(1) as thread:
        a, b = lab.hosts(2)
        playing = thread.submit(lambda: play(scene(a, b)))
        if talking.wait(LONG):
            b.cut()
            cut.set()
        playing.result()
