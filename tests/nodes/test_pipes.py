"""A member at the other end of real pipes, as ssh gives them: noise first, stray prints later."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from holdfast.nodes import pipes
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelError, NotHoldfast, WrongVersion
from holdfast.nodes.framed_stream import FramedStream
from holdfast.nodes.handshake import Side
from tests.nodes.conversation import COORDINATOR, LONG, Answer, Ask, Messages, play
from tests.places import ROOT

pytestmark = pytest.mark.xdist_group("nodes-pipes")

MEMBER = """
import asyncio, sys
from holdfast.nodes import frames
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.pipes import channel_over_stdio
from tests.nodes.conversation import Answer, Messages

frames.PROTOCOL = int(sys.argv[1])

async def main():
    me = Introduction(node="node-b")
    async with channel_over_stdio(understands=Messages, me=me, seconds=20) as channel:
        print("a stray print")
        asked = await channel.receive(seconds=20)
        await channel.send(Answer(asked.number + 1, asked.text))
        await channel.receive(seconds=20)

asyncio.run(main())
"""


@contextlib.asynccontextmanager
async def started(*argv: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


async def reached(process: asyncio.subprocess.Process, seconds: float = LONG) -> Channel:
    assert process.stdout
    assert process.stdin
    return await pipes.channel_over(
        process.stdout,
        process.stdin,
        understands=Messages,
        me=COORDINATOR,
        peer="ssh node-b",
        seconds=seconds,
    )


def after(noise: str, protocol: int = 1) -> tuple[str, ...]:
    """A login shell that is noisy, then a member."""
    return ("sh", "-c", f'{noise}; exec "$@"', "sh", sys.executable, "-c", MEMBER, str(protocol))


@pytest.mark.parametrize(
    ("noise", "quoted"),
    [
        (":", ""),
        (r"echo 'Welcome to node-b'; printf '\033[31mred\033[0m\n'", "Welcome to node-b [31mred"),
        ("head -c 200000 /dev/zero | tr '\\0' x", "xxxxxxxx"),
    ],
)
def test_a_member_is_found_behind_the_noise_of_its_shell(noise: str, quoted: str) -> None:
    async def scene() -> None:
        async with started(*after(noise)) as process:
            channel = await reached(process)
            assert channel.node == "node-b"
            assert channel.noise.startswith(quoted)
            await channel.send(Ask(41, "x" * 300_000))
            assert await channel.receive(seconds=LONG) == Answer(42, "x" * 300_000)
            await channel.send(Ask(0))
            await channel.close()
            assert process.stderr
            assert await process.stderr.readline() == b"a stray print\n"

    play(scene())


@pytest.mark.parametrize(
    ("command", "seconds", "said"),
    [
        ("echo This account is disabled.; exit 1", LONG, r"ended before .* account is disabled\.$"),
        ("exit 127", LONG, "^ssh node-b ended before holdfast answered$"),
        ("echo 'Password expired. New password:'; exec cat", 0.5, "New password:"),
        ("exec sleep 100", 0.3, r"did not complete the handshake within 0.3 s$"),
        ("exec yes", LONG, "and no word of holdfast"),
        ("exec cat", 0.5, "did not complete the handshake"),
    ],
    ids=["banner and end", "end", "prompt", "silence", "endless", "echo"],
)
def test_what_is_no_member_is_quoted(command: str, seconds: float, said: str) -> None:
    async def scene() -> None:
        async with started("sh", "-c", command) as process:
            with pytest.raises(ChannelError, match=said):
                await reached(process, seconds)

    play(scene())


def test_another_version_at_the_other_end_is_named_on_both_sides() -> None:
    async def scene() -> None:
        async with started(*after("echo hello", protocol=7)) as process:
            with pytest.raises(WrongVersion, match=r"node-b \(ssh node-b\) runs .*\(protocol 7\)"):
                await reached(process)
            assert process.stderr
            said = (await process.stderr.read()).decode()
            assert "node-0 (the coordinator) runs holdfast" in said
            assert "(protocol 1), this node speaks protocol 7" in said

    play(scene())


def test_the_preamble_may_arrive_in_pieces_and_its_beginning_twice() -> None:
    async def scene() -> None:
        reader = asyncio.StreamReader(limit=32)
        preamble = Side.MEMBER.preamble
        noise = bytearray()
        stream = FramedStream(reader, None, peer="ssh x")  # type: ignore[arg-type]
        skipping = asyncio.ensure_future(
            stream.skip_to_preamble(preamble, largest=1000, noise=noise)
        )
        for piece in (b"x" * 100, preamble[:5], preamble[:9], preamble[9:] + b"rest"):
            reader.feed_data(piece)
            await asyncio.sleep(0)
        await asyncio.wait_for(skipping, LONG)
        assert bytes(noise) == b"x" * 100 + preamble[:5]
        assert await reader.read(100) == b"rest"

    play(scene())


def test_noise_without_end_is_bounded() -> None:
    async def scene() -> None:
        async with started("yes") as process:
            with pytest.raises(NotHoldfast) as caught:
                await reached(process)
            assert len(str(caught.value)) < 1000

    play(scene())
