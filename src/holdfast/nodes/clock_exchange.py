"""How far a node's wall clock is from ours, and within what bound: as NTP does, over a channel.

We note our clocks, ask, the node notes its own as soon as it reads the question, and we note ours
when its answer is here. Its note was taken between our two, whatever the delays of each way, so
that every round gives an interval that contains the truth; the truth is in all of them at once.

Intervals are measured on clocks that nothing can set (CLOCK_BOOTTIME, which also counts suspend);
the wall clock enters only as its distance from that clock on its own machine. A wall clock that is
set during the exchange therefore cannot make the answer wrong, and the change itself is seen.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import ClockOffset
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelTimeout

ROUNDS = 8
DRIFT = 1e-3
"""two clocks that are each slewed by the kernel's largest 500 ppm"""
STEP = 1_000_000
"""ns; a wall clock keeps its distance from the steady clock unless something sets it"""


class ClockReading(msgspec.Struct, frozen=True, array_like=True):
    """Both clocks of one machine at one moment, in ns."""

    wall: int
    steady: int
    doubt: int
    """the two were read at most this far apart"""

    @property
    def distance(self) -> int:
        return self.wall - self.steady


class ClockPing(msgspec.Struct, frozen=True, tag=True):
    """What are your clocks? Answer at once: `ClockPong(number, read_clocks())`."""

    number: int


class ClockPong(msgspec.Struct, frozen=True, tag=True):
    number: int
    there: ClockReading


class ClockSample(NamedTuple):
    """One round: our clocks before and after, and the node's in between."""

    asked: ClockReading
    there: ClockReading
    answered: ClockReading


class ClockComparison(NamedTuple):
    offset: ClockOffset | Unread
    steps: tuple[str, ...]
    """a sentence for each machine whose wall clock was set during the exchange"""


def boot_time() -> float:
    """Seconds; goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_clocks() -> ClockReading:
    """The best of a few tries: this process may lose its core between two readings."""
    return min((_read_once() for _ in range(4)), key=lambda reading: reading.doubt)


def _read_once() -> ClockReading:
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    wall = time.time_ns()
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return ClockReading(wall=wall, steady=before, doubt=after - before)


def answer_ping(ping: ClockPing) -> ClockPong:
    return ClockPong(ping.number, read_clocks())


async def compare_clocks(
    channel: Channel, *, node: str, seconds: float, rounds: int = ROUNDS
) -> ClockComparison:
    """Asks `rounds` times within `seconds`; no other task may receive meanwhile.

    Fewer answers than rounds give a wider bound, none at all `Unread`; a `ClockPong` may then still
    come. A peer that is gone raises `ChannelClosed`.
    """
    samples: list[ClockSample] = []
    end = time.monotonic() + seconds
    first = secrets.randbits(32)
    for number in range(first, first + rounds):
        asked = read_clocks()
        if samples and time.monotonic() + 2 * _longest_round(samples) > end:
            break  # its answer would come when it is no longer waited for
        try:
            pong = await _answer_of(channel, ClockPing(number), end)
        except ChannelTimeout:
            break
        if not isinstance(pong, ClockPong):
            return ClockComparison(Unread(why=f"{node} answered another question"), ())
        samples.append(ClockSample(asked, pong.there, read_clocks()))
    if not samples:
        why = f"{node} did not answer within {seconds:g} s"
        return ClockComparison(Unread(why=why, timed_out=True), ())
    return compared(samples, node=node)


def _longest_round(samples: Sequence[ClockSample]) -> float:
    return max(one.answered.steady - one.asked.steady for one in samples) / 1e9


async def _answer_of(channel: Channel, ping: ClockPing, end: float) -> Any:
    """Late answers to earlier questions are passed over."""
    await channel.send(ping, seconds=max(0.01, end - time.monotonic()))
    while True:
        answer = await channel.receive(seconds=max(0.01, end - time.monotonic()))
        if not isinstance(answer, ClockPong) or answer.number == ping.number:
            return answer


def compared(samples: Sequence[ClockSample], *, node: str) -> ClockComparison:
    """The node's wall clock minus ours, as of the last sample."""
    now = samples[-1].answered
    lowest, highest = _steady_interval(samples, now.steady)
    steps = (
        *_step("this machine", [r for s in samples for r in (s.asked, s.answered)]),
        *_step(node, [s.there for s in samples]),
    )
    if lowest > highest:
        why = f"the steady clocks of {node} and of this machine do not run alike"
        return ClockComparison(Unread(why=why), steps)
    there = samples[-1].there
    middle = (lowest + highest) / 2 + there.distance - now.distance
    bound = (highest - lowest) / 2 + there.doubt + now.doubt
    return ClockComparison(ClockOffset(seconds=middle / 1e9, bound=bound / 1e9), steps)


def _steady_interval(samples: Sequence[ClockSample], now: int) -> tuple[float, float]:
    """Where the distance between the two steady clocks is now: what all samples agree on."""
    lowest, highest = float("-inf"), float("inf")
    for sample in samples:
        drifted = DRIFT * (now - sample.asked.steady)
        lowest = max(lowest, sample.there.steady - sample.answered.steady - drifted)
        highest = min(highest, sample.there.steady - sample.asked.steady + drifted)
    return lowest, highest


def _step(machine: str, readings: Sequence[ClockReading]) -> tuple[str, ...]:
    first, last = readings[0], readings[-1]
    moved = last.distance - first.distance
    if abs(moved) <= STEP + first.doubt + last.doubt:
        return ()
    return (f"the wall clock of {machine} was set by {moved / 1e9:+.3f} s during the exchange",)
