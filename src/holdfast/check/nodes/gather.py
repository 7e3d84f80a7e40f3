"""The members of a check come together: at an address, or each at the end of an ssh connection."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.analysis.nodes import Absence
from holdfast.check.nodes import messages
from holdfast.nodes.channel import Channel
from holdfast.nodes.handshake import Greeting, Introduction
from holdfast.nodes.listener import listening
from holdfast.nodes.pipes import channel_over
from holdfast.nodes.token import Token

START_SECONDS = 20.0
"""for a member to log in, to start and to say who it is"""
FIRST_WAIT = 30.0
"""seconds for a second node to come: people start the nodes one after the other"""
NEXT_WAIT = 4.0
"""seconds for one more after the latest: a node that is not here by then is named"""

COORDINATOR = Introduction(node="coordinator")

Say = Callable[[str], None]


class Gathered(NamedTuple):
    members: dict[str, Channel]
    """by name; in the order of their numbers where a scheduler gave any, else of their names"""
    absent: tuple[Absence, ...]
    racks: dict[str, str]


class Arrivals:
    """Members as they come in, until all are here or no more come."""

    def __init__(self, expected: int, say: Say) -> None:
        self._expected = expected
        self._say = say
        self._came: list[tuple[messages.Arrival, Channel]] = []
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        self._closed = False

    def admit(self, _: Greeting) -> str:
        why = self._refusal()
        if not why:
            self._news.set()  # on a lossy path it takes seconds more until it is here
        return why

    def _refusal(self) -> str:
        """Why one more node cannot take part; '' when it can."""
        if len(self._came) >= self._expected:
            return f"all {self._expected} nodes are here already"
        return "the check has begun without it: it came too late" if self._closed else ""

    async def serve(self, channel: Channel) -> None:
        """Keep the channel open until the check is over."""
        if await self.add(channel):
            await self._over.wait()

    async def add(self, channel: Channel) -> bool:
        """Whether this member takes part; meanwhile others may have come, or the check begun."""
        arrival = await channel.receive(seconds=START_SECONDS)
        if not isinstance(arrival, messages.Arrival):
            return False
        if why := self._refusal():
            words = f"this node takes no part: {why}"
            await channel.send(messages.Finish(exit_code=2, words=words))
            return False
        self._came.append((arrival, channel))
        self._news.set()
        self._say(f"{arrival.host} is here: {len(self._came)} of {self._expected} nodes")
        return True

    async def settle(self, wait: float | None) -> None:
        """Until all are here, or none has come for a while; `wait` overrides how long."""
        while len(self._came) < self._expected:
            patience = wait or (NEXT_WAIT if len(self._came) > 1 else FIRST_WAIT)
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), patience)
            except asyncio.TimeoutError:
                break
        self._closed = True

    def over(self) -> None:
        self._over.set()

    def gathered(self, names: Sequence[str], turned_away: Iterable[str]) -> Gathered:
        """`names`: of all nodes, where a scheduler told them."""
        ordered = sorted(self._came, key=lambda one: _place(one[0]))
        members: dict[str, Channel] = {}
        racks: dict[str, str] = {}
        for arrival, channel in ordered:
            name = _unused(arrival.host, members)
            members[name], racks[name] = channel, arrival.rack
        absent = missing(self._expected, names, list(members), turned_away)
        return Gathered(members, absent, racks)


@contextlib.asynccontextmanager
async def gather_at(
    addresses: Sequence[str],
    port: int,
    *,
    token: Token,
    expected: int,
    names: Sequence[str],
    arrival: messages.Arrival,
    wait: float | None,
    say: Say,
) -> AsyncIterator[Gathered]:
    """As the coordinator: members join here; this machine, as `arrival`, is one of the nodes."""
    arrivals = Arrivals(expected, say)
    async with (
        listening(
            addresses,
            port,
            token=token,
            understands=messages.Reply,
            serve=arrivals.serve,
            admit=arrivals.admit,
            me=COORDINATOR,
        ) as listener,
        own_member(arrival) as own,
    ):
        await arrivals.add(own)
        try:
            await arrivals.settle(wait)
            found = arrivals.gathered(names, [away.sentence for away in listener.turned_away])
            for one in found.absent:
                say(f"{one.name or 'a node'} is missing: {one.why}")
            yield found
        finally:
            arrivals.over()


@contextlib.asynccontextmanager
async def own_member(arrival: messages.Arrival) -> AsyncIterator[Channel]:
    """This machine's own part runs in a process of its own: what it looks at may block it."""
    told = msgspec.json.encode(arrival).decode()
    process = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "holdfast", "check", "--member", "--arrival", told],
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield await channel_over(
            process.stdout,
            process.stdin,
            understands=messages.Reply,
            me=COORDINATOR,
            peer="this machine's own part",
            seconds=START_SECONDS,
        )
    finally:
        process.stdin.close()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), 2)
        if process.returncode is None:
            process.kill()
            await process.wait()


def _place(arrival: messages.Arrival) -> tuple[object, ...]:
    """Numbers in names count as numbers: node-2 comes before node-10."""
    parts = re.split(r"(\d+)", arrival.host)
    natural = tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)
    return (arrival.index is None, arrival.index or 0, natural)


def _unused(host: str, taken: dict[str, Channel]) -> str:
    """Two nodes may call themselves the same; duplicate-identity says so, we tell them apart."""
    if host not in taken:
        return host
    return next(name for n in range(2, len(taken) + 3) if (name := f"{host}#{n}") not in taken)


def missing(
    expected: int, names: Sequence[str], came: Sequence[str], turned_away: Iterable[str]
) -> tuple[Absence, ...]:
    """Who is not here, by name where the scheduler's names are what the nodes call themselves."""
    count = expected - len(came)
    if count <= 0:
        return ()
    here = {name.partition(".")[0] for name in came}
    absent = [name for name in names if name.partition(".")[0] not in here]
    if len(absent) != count:
        absent = [""] * count
    away = list(turned_away)
    why = "did not join" + (f"; turned away meanwhile: {'; '.join(away)}" if away else "")
    return tuple(
        Absence(name=name, why=why, hint=f"ssh {name} hostname" if name else "") for name in absent
    )
