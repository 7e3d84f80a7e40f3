"""The coordinator's end of all links: launchers join here, are heard here, and are told here."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from holdfast.analysis.nodes import ClockOffset
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import BadMessage, ChannelClosed, ChannelError
from holdfast.nodes.clock_exchange import boot_time, read_clocks
from holdfast.nodes.framed_stream import quoted
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.lease import LATE_LOOK
from holdfast.nodes.listener import listening
from holdfast.nodes.token import Token
from holdfast.run.nodes.link import beat_sockets
from holdfast.run.nodes.link.beat import NAME, stream_name
from holdfast.run.nodes.link.clock_offset import read_both
from holdfast.run.nodes.link.fencing import SHORT_LEASE, LeaseTerms
from holdfast.run.nodes.link.interface import (
    CoordinatorNews,
    Heard,
    NodeClosed,
    NodeJoined,
    NodeSaid,
)
from holdfast.run.nodes.link.link_thread import LinkThread
from holdfast.run.nodes.link.machine_probe import kernel_answers
from holdfast.run.nodes.link.member_stream import MemberStream
from holdfast.run.nodes.link.outbox import Outbox
from holdfast.run.nodes.link.report_codec import ReportUpdate
from holdfast.run.nodes.link.wire_messages import (
    ClockAnswer,
    ClockQuestion,
    ComeLater,
    FromLauncher,
    Hello,
    LinkEnds,
    Ordered,
    Pulse,
    Resume,
    Said,
    Welcome,
)
from holdfast.run.nodes.messages import Admitted, Leaving, NodeCard, NodeReport, ToLauncher

BEAT_EVERY = 0.2
PULSE_EVERY = 0.5
LARGEST = 32 << 20
"""bytes of one message: a report with the recorders of all ranks of a node is about 1 MB"""
FIRST_WORD = 10.0
PROBE_EVERY = 1.0
LAST_WORDS = 2.0
CLOCK_DOUBT = 2.0
"""seconds by which a first message may be older than when it was waited for"""


class ListeningLink:
    """Listens from its creation to `close`; a port that is taken raises CannotListen."""

    def __init__(
        self,
        addresses: Sequence[str],
        port: int,
        *,
        token: Token,
        node: str,
        run: str,
        rendezvous_id: str = "",
        terms: LeaseTerms = SHORT_LEASE,
    ) -> None:
        """`run` and `terms` are what launchers are told; `rendezvous_id`, where both sides have
        one, must be theirs as well."""
        self.port = port
        self._terms = terms
        self._token = token
        self._run_id = run
        self._me = Introduction(node=node, run=rendezvous_id)
        self._names: dict[str, MemberStream] = {}
        self._streams: dict[bytes, MemberStream] = {}
        """by what their datagrams begin with"""
        self._heard: Mapping[str, Heard] = {}
        self._lease: Callable[[], float] = lambda: math.inf
        self._beats = beat_sockets.BeatSockets(self._datagram)
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread: LinkThread[CoordinatorNews] = LinkThread("holdfast-link")
        self._thread.start(self._main(addresses, port))

    # --- the agent's thread ---

    def news(self) -> list[CoordinatorNews]:
        return self._thread.news()

    def wait(self, seconds: float) -> None:
        self._thread.wait(seconds)

    def send(self, node: str, message: ToLauncher) -> None:
        self._thread.call(self._post, node, message)

    def heard(self) -> Mapping[str, Heard]:
        return self._heard

    def give_up(self, node: str, why: str) -> None:
        self._thread.call(self._give_up, node, why)

    def end_with(self, lease: Callable[[], float]) -> None:
        self._lease = lease

    def turned_away(self) -> list[str]:
        return [problem.sentence for problem in self._listener.turned_away]

    def close(self) -> None:
        self._thread.call(self._stop.set)
        self._thread.join(LAST_WORDS + 5.0)

    # --- the link's own thread ---

    async def _main(self, addresses: Sequence[str], port: int) -> None:
        self._stop = asyncio.Event()
        async with listening(
            addresses,
            port,
            token=self._token,
            understands=FromLauncher,
            serve=self._serve,
            me=self._me,
            limit=LARGEST,
        ) as self._listener:
            self.port = self._listener.port
            self._thread.ready()
            ticking = asyncio.ensure_future(self._tick())
            try:
                await asyncio.wait(
                    {ticking, asyncio.ensure_future(self._stop.wait())},
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if ticking.done():
                    ticking.result()
                await self._last_words()
            finally:
                ticking.cancel()
                self._beats.close()

    async def _last_words(self) -> None:
        end = time.monotonic() + LAST_WORDS
        here = [member for member in self._streams.values() if member.channel and not member.lost]
        while any(not m.outbox.empty and m.channel for m in here) and time.monotonic() < end:
            await asyncio.sleep(0.02)
        last = LinkEnds("the coordinator has ended", done=True)
        await asyncio.gather(*(self._end(m.channel, last) for m in here if m.channel))

    async def _tick(self) -> None:
        """Judge, beat, probe: five times a second, until our own lease is over."""
        looked = time.monotonic()
        while boot_time() < self._lease():
            now = time.monotonic()
            late = now - looked - LATE_LOOK
            for member in list(self._streams.values()):
                if late > 0:
                    member.loop_was_late(late)
                if not member.lost:
                    self._beat(member, now)
            looked = now
            self._judge(now)
            await asyncio.sleep(BEAT_EVERY)

    def _judge(self, now: float) -> None:
        heard = {}
        for name, member in self._names.items():
            was_lost = member.lost
            heard[name] = member.judge(now)
            if member.lost and not was_lost:
                self._drop(member, member.words)
            if member.wants_probe(now) and member.probing is None:
                member.probing = self._task(self._probe(member))
        self._heard = heard

    def _beat(self, member: MemberStream, now: float) -> None:
        if member.beats_to and member.beats_count(now):
            bound, where = member.beats_to
            beat = member.beats_out.pack(member.signs.next_number(now), member.confirmed)
            with contextlib.suppress(OSError):
                bound.sendto(beat, where)

    def _datagram(self, raw: bytes, came: beat_sockets.Came) -> None:
        member = self._streams.get(stream_name(raw))
        if member is None or member.lost:
            return
        if beat := member.beats_in.open(raw):
            member.beats_to = came
            member.beat(beat.number, beat.confirmed, time.monotonic())

    async def _probe(self, member: MemberStream) -> None:
        if member.machine:
            answered = await kernel_answers(*member.machine)
            member.machine_asked(answered=answered, now=time.monotonic())
        await asyncio.sleep(PROBE_EVERY)
        member.probing = None

    async def _probe_while_well(self, member: MemberStream) -> None:
        member.machine_answered = member.machine is not None and await kernel_answers(
            *member.machine
        )

    def _task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- one connection ---

    async def _serve(self, channel: Channel) -> None:
        asked, clock = time.time(), None
        hello = await channel.receive(seconds=FIRST_WORD)
        if isinstance(hello, Hello):
            now = time.time()
            clock = ClockOffset(seconds=hello.wall - now, bound=abs(now - asked) + CLOCK_DOUBT)
            joined, received = self._join(hello.card), 0
            if joined is None:
                why = f"the launcher that was {hello.card.name} is gone, its ranks may still run"
                await self._end(channel, ComeLater(why))
                return
            member = joined
        elif isinstance(hello, Resume):
            found = self._streams.get(hello.stream[:NAME])
            if found is None or found.lost or found.stream != hello.stream:
                why = found.words if found else "it is not known here"
                await self._end(channel, LinkEnds(f"this node was given up: {why}", done=False))
                return
            member, received = found, hello.received
        else:
            return
        await self._talk(member, channel, hello.card, received, clock=clock)

    async def _talk(
        self,
        member: MemberStream,
        channel: Channel,
        card: NodeCard,
        received: int,
        *,
        clock: ClockOffset | None,
    ) -> None:
        """Until the connection ends, or another one takes its place. `clock`: of one that joins;
        None for one that comes back."""
        replaced, member.channel = member.channel, channel
        if replaced:
            self._task(replaced.close())
        admitted = Admitted(name=member.name, run=self._run_id, lease=self._terms)
        writing: asyncio.Future[Any] | None = None
        try:
            await channel.send(Welcome(admitted, member.stream, member.inbox.received))
            member.opened(card, received, time.monotonic())
            self._reached(member, channel)
            self._judge(time.monotonic())
            self._thread.put(
                NodeJoined(member.name, card, channel.own_end[0], clock is None, clock)
            )
            writing = asyncio.gather(self._write(member, channel), self._pulse(member, channel))
            writing.add_done_callback(lambda ended: self._writing_ended(channel, ended))
            while True:
                await self._take(member, channel, await channel.receive(seconds=None))
        except ChannelError as problem:
            self._ended(member, channel, _failure(writing) or problem)
        finally:
            if writing:
                writing.cancel()
                await asyncio.gather(writing, return_exceptions=True)

    def _writing_ended(self, channel: Channel, ended: asyncio.Future[Any]) -> None:
        """Nothing can be told to it any more: then there is no use in listening."""
        problem = None if ended.cancelled() else ended.exception()
        if isinstance(problem, ChannelError):
            self._task(channel.close())
        elif isinstance(problem, Exception):
            self._thread.fail(problem)

    def _reached(self, member: MemberStream, channel: Channel) -> None:
        self._beats.listen_at(channel.own_end[0], self.port)
        address, port = channel.peer_end
        own = address in member.card.addresses  # else something in between answers for it
        member.machine = (address, port) if own or not member.card.addresses else None
        self._task(self._probe_while_well(member))

    async def _write(self, member: MemberStream, channel: Channel) -> None:
        while True:
            member.to_write.clear()
            while message := member.outbox.unwritten():
                await channel.send(Ordered(*message))
            await member.to_write.wait()

    async def _pulse(self, member: MemberStream, channel: Channel) -> None:
        while True:
            await self._acknowledge(member, channel)
            await asyncio.sleep(PULSE_EVERY)

    async def _acknowledge(self, member: MemberStream, channel: Channel) -> None:
        number = member.signs.next_number(time.monotonic())
        wall = read_clocks().distance
        await channel.send(Pulse(number, member.confirmed, member.inbox.received, wall))

    async def _take(self, member: MemberStream, channel: Channel, message: Any) -> None:
        now = time.monotonic()
        member.spoke(0, 0, now)
        try:
            if isinstance(message, Pulse):
                member.spoke(message.number, message.confirmed, now)
                member.outbox.acknowledged(message.received)
            elif isinstance(message, Said):
                if member.inbox.takes(message.number):
                    await self._said(member, channel, message.message, now)
            elif isinstance(message, ClockQuestion):
                member.spoke(message.number, 0, now)
                await channel.send(ClockAnswer(message.number, *read_both()))
            else:
                raise BadMessage(channel.peer, "sent a greeting in the middle of a conversation")
        except ValueError as problem:
            raise BadMessage(channel.peer, f"sent {quoted(str(problem).encode())}") from None

    async def _said(self, member: MemberStream, channel: Channel, message: Any, now: float) -> None:
        if isinstance(message, ReportUpdate):
            message = member.decoder.report(message)
        elif isinstance(message, Leaving):
            member.leaves(message.why, ranks_gone=message.ranks_gone)
            self._judge(now)
        self._thread.put(NodeSaid(member.name, message, now))
        if not isinstance(message, NodeReport):
            await self._acknowledge(member, channel)

    def _ended(self, member: MemberStream, channel: Channel, problem: ChannelError) -> None:
        if member.channel is not channel:
            return  # another connection took its place
        words = problem.why if isinstance(problem, ChannelClosed) else problem.sentence
        member.closed(words.removeprefix("is gone: "), time.monotonic())
        if isinstance(problem, BadMessage) and not member.lost:
            member.given_up(words)
        self._judge(time.monotonic())
        self._thread.put(NodeClosed(member.name, member.words))

    async def _end(self, channel: Channel, last: LinkEnds | ComeLater) -> None:
        with contextlib.suppress(ChannelError):
            await channel.send(last, seconds=LAST_WORDS)
        await channel.close()

    def _drop(self, member: MemberStream, words: str) -> None:
        """It is lost; should it still hear us, it learns that."""
        member.outbox = Outbox()
        if member.channel:
            why = f"this node was given up: {words}"
            self._task(self._end(member.channel, LinkEnds(why, done=False)))

    # --- names ---

    def _join(self, card: NodeCard) -> MemberStream | None:
        """None while there is no name for it."""
        for old in self._names.values():
            if old.card.identity == card.identity and old.farewell != "left":
                old.leaves("joined again")
                self._drop(old, old.words)
        name = self._free_name(card)
        if name is None:
            return None
        member = MemberStream(name, card, self._token, time.monotonic(), terms=self._terms)
        self._names[name] = self._streams[member.stream[:NAME]] = member
        return member

    def _free_name(self, card: NodeCard) -> str | None:
        """'a', or 'a#2' beside another launcher of that name. None: the one that had the name is
        gone, and its ranks may not have ended yet."""
        base = quoted(card.name.encode(), longest=100) or "node"
        for number in itertools.count(1):
            name = base if number == 1 else f"{base}#{number}"
            holder = self._names.get(name)
            if holder is None:
                if name != self._me.node:
                    return name
            elif holder.card.identity == card.identity:
                return name
            elif holder.channel is None or holder.lost:
                return name if holder.is_followed_by(card, time.monotonic()) else None
        raise AssertionError("there are names enough")

    def _post(self, node: str, message: ToLauncher) -> None:
        member = self._names.get(node)
        if member is None or member.lost:
            return
        if member.outbox.full:
            self._give_up(node, "it did not read what was sent to it")
            return
        member.outbox.add(message)
        member.to_write.set()

    def _give_up(self, node: str, why: str) -> None:
        member = self._names.get(node)
        if member is not None and not member.lost:
            member.given_up(why)
            self._drop(member, why)


def _failure(writing: asyncio.Future[Any] | None) -> ChannelError | None:
    """Of our own writing, where that is why the connection ended."""
    if writing is None or not writing.done() or writing.cancelled():
        return None
    problem = writing.exception()
    if isinstance(problem, ChannelError) and not isinstance(problem, ChannelClosed):
        return problem
    return None
