from __future__ import annotations

import asyncio
import socket
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import ClockOffset
from holdfast.nodes import clock_exchange
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelClosed, ChannelError
from holdfast.nodes.clock_exchange import (
    ClockPing,
    ClockPong,
    ClockReading,
    ClockSample,
    answer_ping,
    compare_clocks,
    compared,
    read_clocks,
)
from holdfast.nodes.framed_stream import FramedStream
from tests.nodes.conversation import LONG, play

SECOND = 1_000_000_000
DELAYS = st.integers(0, SECOND // 2)
ROUNDS = st.lists(st.tuples(DELAYS, DELAYS, DELAYS), min_size=1, max_size=12)
"""how long the way there took, the way back, and the pause until the next"""
DAY = 86_400 * SECOND


class Machine:
    """Two clocks of a machine as a function of true time; rates within the kernel's ±500 ppm."""

    def __init__(self, wall: int, steady: int, ppm: int) -> None:
        self.wall, self.steady, self.ppm = wall, steady, ppm

    def at(self, true: int) -> ClockReading:
        run = true + true * self.ppm // 1_000_000
        return ClockReading(wall=self.wall + run, steady=self.steady + run, doubt=0)


MACHINES = st.builds(
    Machine, st.integers(DAY, 2 * DAY), st.integers(0, DAY), st.integers(-490, 490)
)


def exchange(
    here: Machine, there: Machine, delays: list[tuple[int, int, int]]
) -> tuple[list[ClockSample], int]:
    """Rounds with these delays (there, back, pause); and the true time at the end."""
    true, samples = 0, []
    for onward, back, pause in delays:
        asked, arrived = here.at(true), there.at(true + onward)
        true += onward + back
        samples.append(ClockSample(asked, arrived, here.at(true)))
        true += pause
    return samples, true - delays[-1][2]


@given(
    here=MACHINES,
    there=MACHINES,
    delays=st.lists(st.tuples(DELAYS, DELAYS, DELAYS), min_size=1, max_size=12),
)
def test_the_truth_is_within_the_bound_whatever_the_delays(
    here: Machine, there: Machine, delays: list[tuple[int, int, int]]
) -> None:
    samples, end = exchange(here, there, delays)
    found = compared(samples, node="b")
    assert isinstance(found.offset, ClockOffset)
    truth = (there.at(end).wall - here.at(end).wall) / SECOND
    assert abs(found.offset.seconds - truth) <= found.offset.bound + 1e-6
    assert found.steps == ()


@given(
    here=MACHINES,
    there=MACHINES,
    delays=st.lists(st.tuples(DELAYS, DELAYS, st.just(0)), min_size=1, max_size=12),
)
def test_many_rounds_are_never_worse_than_the_best_of_them(
    here: Machine, there: Machine, delays: list[tuple[int, int, int]]
) -> None:
    samples, end = exchange(here, there, delays)
    found = compared(samples, node="b").offset
    assert isinstance(found, ClockOffset)
    aged = (end - samples[0].asked.steady + here.steady) * clock_exchange.DRIFT
    shortest = min(sample.answered.steady - sample.asked.steady for sample in samples)
    assert found.bound * SECOND <= shortest / 2 + aged + 1000


def test_two_lopsided_rounds_are_better_than_either() -> None:
    """One fast on the way there, one on the way back: together they leave no room."""
    here, there = Machine(DAY, 0, 0), Machine(DAY + 5 * SECOND, 77, 0)
    samples, _ = exchange(here, there, [(0, SECOND // 100, 0), (SECOND // 100, 0, 0)])
    both = compared(samples, node="b").offset
    one = compared(samples[:1], node="b").offset
    assert isinstance(both, ClockOffset)
    assert isinstance(one, ClockOffset)
    assert both.seconds == pytest.approx(5.0, abs=1e-4)
    assert both.bound < 1e-4 < one.bound


@given(
    here=MACHINES,
    there=MACHINES,
    delays=st.lists(st.tuples(DELAYS, DELAYS, DELAYS), min_size=2, max_size=8),
    step=st.integers(2 * clock_exchange.STEP, DAY) | st.integers(-DAY, -2 * clock_exchange.STEP),
    remote=st.booleans(),
)
def test_a_wall_clock_that_is_set_meanwhile_is_named_and_the_answer_is_that_of_now(
    here: Machine, there: Machine, delays: list[tuple[int, int, int]], step: int, remote: bool
) -> None:
    samples, end = exchange(here, there, delays)
    stepped = there if remote else here
    stepped.wall += step
    late, _ = exchange(here, there, delays)
    found = compared([samples[0], *late[1:]], node="b")
    assert isinstance(found.offset, ClockOffset)
    truth = (there.at(end).wall - here.at(end).wall) / SECOND
    assert abs(found.offset.seconds - truth) <= found.offset.bound + 1e-6
    (said,) = found.steps
    assert ("of b was set by" if remote else "of this machine was set by") in said
    assert f"{step / SECOND:+.3f} s" in said


def test_steady_clocks_that_do_not_run_alike_are_not_believed() -> None:
    here, there = Machine(DAY, 0, 0), Machine(DAY, 0, 0)
    samples, _ = exchange(here, there, [(1000, 1000, SECOND)] * 3)
    there.steady -= SECOND  # paused: a virtual machine that was moved
    later, _ = exchange(here, there, [(1000, 1000, SECOND)] * 3)
    found = compared([samples[0], *later[1:]], node="b").offset
    assert isinstance(found, Unread)
    assert "do not run alike" in found.why


def test_real_clocks_are_read_together() -> None:
    first, second = read_clocks(), read_clocks()
    assert abs(first.wall - time.time_ns()) < LONG * SECOND
    assert 0 <= first.doubt < SECOND
    assert second.steady >= first.steady
    assert abs(second.distance - first.distance) <= first.doubt + second.doubt


async def a_pair() -> tuple[Channel, Channel]:
    """Two ends of a real socket, without a handshake."""
    ends = []
    for half in socket.socketpair():
        reader, writer = await asyncio.open_connection(sock=half)
        stream = FramedStream(reader, writer, peer="b")
        ends.append(Channel(stream, understands=ClockPing | ClockPong))
    return ends[0], ends[1]


def test_an_answer_that_is_too_late_is_not_taken_for_the_next() -> None:
    async def scene() -> None:
        here, there = await a_pair()
        await compare_clocks(here, node="b", seconds=0.05)
        answering = asyncio.ensure_future(answer_with(there, SECOND, 99))
        found = await compare_clocks(here, node="b", seconds=LONG)
        assert isinstance(found.offset, ClockOffset)
        assert abs(found.offset.seconds - 1) <= found.offset.bound
        await here.close()
        await answering
        await there.close()

    play(scene())


async def answer_with(channel: Channel, skew: int, most: int) -> None:
    try:
        for _ in range(most):
            pong = answer_ping(await channel.receive(seconds=LONG))
            skewed = msgspec.structs.replace(pong.there, wall=pong.there.wall + skew)
            await channel.send(ClockPong(pong.number, skewed))
        await channel.receive(seconds=LONG)
    except ChannelError:
        pass


@pytest.mark.parametrize(
    ("skew", "answers"), [(0, 99), (3600 * SECOND, 99), (-250_000_000, 99), (-250_000_000, 3)]
)
def test_the_offset_of_a_node_over_a_channel(skew: int, answers: int) -> None:
    async def scene() -> None:
        here, there = await a_pair()
        answering = asyncio.ensure_future(answer_with(there, skew, answers))
        found = await compare_clocks(here, node="b", seconds=LONG if answers > 9 else 0.5)
        assert isinstance(found.offset, ClockOffset)
        assert abs(found.offset.seconds - skew / SECOND) <= found.offset.bound
        assert found.offset.bound < LONG
        assert found.steps == ()
        await here.close()
        await answering
        await there.close()

    play(scene())


def test_a_node_that_does_not_answer_is_not_read_and_one_that_is_gone_is_an_error() -> None:
    async def scene() -> None:
        here, there = await a_pair()
        found = await compare_clocks(here, node="b", seconds=0.2)
        assert found.offset == Unread(why="b did not answer within 0.2 s", timed_out=True)
        await there.send(ClockPing(1))
        found = await compare_clocks(here, node="b", seconds=LONG)
        assert found.offset == Unread(why="b answered another question")
        await there.close()
        with pytest.raises(ChannelClosed):
            await compare_clocks(here, node="b", seconds=LONG)
        await here.close()

    play(scene())
