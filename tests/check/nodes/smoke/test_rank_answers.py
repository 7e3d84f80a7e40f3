"""One real rank, alone: it answers, hangs, dies; what its node makes of that."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.check.nodes.smoke.member import SmokeMember
from holdfast.check.nodes.smoke.messages import (
    SmokeEnd,
    SmokeEnded,
    SmokeHost,
    SmokeHosted,
    SmokeMeet,
    SmokeMet,
    SmokeReady,
    SmokeUnable,
    SmokeWarm,
)

pytestmark = [
    pytest.mark.xdist_group("lab-smoke"),
    pytest.mark.skipif(
        importlib.util.find_spec("torch") is None, reason="needs torch: the ranks import it"
    ),
]

A_TEST = SmokeMeet(
    test="t",
    address="127.0.0.1",
    port=0,
    first_rank=1,
    ranks=1,
    world=2,
    backend="gloo",
    sizes=(8,),
    seconds=5,
)
HOST = SmokeHost(address="127.0.0.1", seconds=5)


@pytest.fixture
def member() -> Iterator[SmokeMember]:
    made = SmokeMember()
    yield made
    assert made.ranks == []


def test_the_life_of_a_rank(member: SmokeMember) -> None:
    """One after the other, since an import of torch costs seconds."""

    async def live() -> None:
        try:
            await needs_to_be_warmed(member)
            await stays_after_it_missed_a_store(member)
            await is_asked_for_its_stack_when_it_hangs(member)
            await is_gone_when_it_was_killed(member)
        finally:
            member.close()

    asyncio.run(live())


async def needs_to_be_warmed(member: SmokeMember) -> None:
    assert isinstance(await member.handle(HOST), SmokeUnable)
    assert isinstance(await member.handle(SmokeWarm(seconds=60)), SmokeReady)


async def stays_after_it_missed_a_store(member: SmokeMember) -> None:
    (rank,) = member.ranks
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    met = await member.handle(msgspec.structs.replace(A_TEST, port=port))
    assert isinstance(met, SmokeMet)
    assert "Connection refused" in met.error
    assert not met.victim
    assert member.ranks == [rank]
    assert isinstance(await member.handle(HOST), SmokeHosted)


async def is_asked_for_its_stack_when_it_hangs(member: SmokeMember) -> None:
    (rank,) = member.ranks
    task = {"test": "t", "address": "127.0.0.1", "rank": 1, "world": 2, "backend": "gloo"}
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes calls, says nothing
        port = silent.getsockname()[1]
        hung = await rank.ask("meet", within=2, port=port, sizes=[8], seconds=60, **task)
    assert f"pid {rank.pid} did not answer in 2 s at File" in hung.error
    assert "rank.py" in hung.error


async def is_gone_when_it_was_killed(member: SmokeMember) -> None:
    (rank,) = member.ranks
    os.kill(rank.pid, signal.SIGKILL)
    met = await member.handle(A_TEST)
    assert met == SmokeMet(error=f"pid {rank.pid} was killed by SIGKILL")
    assert not Path(f"/proc/{rank.pid}").exists()
    assert isinstance(await member.handle(SmokeEnd()), SmokeEnded)


@pytest.mark.long
def test_a_node_with_gpus_says_what_nccl_used_or_why_it_left_them_alone() -> None:
    """By the stand-in for NCCL of tests/fakes, so that its words are NCCL's and its sums Gloo's."""
    folder = Path(__file__).parents[3] / "fakes" / "nccl_over_gloo"
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))
    fake = {**os.environ, "PYTHONPATH": path, "FAKE_GPUS": "2"}
    together = msgspec.structs.replace(
        A_TEST, first_rank=0, ranks=2, backend="nccl", sizes=(1024,), seconds=30.0
    )

    async def live() -> None:
        member = SmokeMember(fake)
        ready = await member.handle(SmokeWarm(seconds=60))
        assert isinstance(ready, SmokeReady)
        assert (ready.nccl, ready.ranks) == ("2.28.9", 2)
        hosted = await member.handle(HOST)
        assert isinstance(hosted, SmokeHosted)
        met = await member.handle(msgspec.structs.replace(together, port=hosted.port))
        assert isinstance(met, SmokeMet)
        assert met.error == ""
        assert {(link.sender, link.receiver, link.name) for link in met.links} == {
            (0, 1, "P2P/CUMEM"),
            (1, 0, "P2P/CUMEM"),
        }
        await member.handle(SmokeEnd())
        left = await member.handle(SmokeWarm(seconds=60, leave_gpus="pid 7 uses it"))
        assert isinstance(left, SmokeReady)
        assert (left.nccl, left.why_no_nccl, left.ranks) == ("", "pid 7 uses it", 1)
        await member.handle(SmokeEnd())

    asyncio.run(live())
