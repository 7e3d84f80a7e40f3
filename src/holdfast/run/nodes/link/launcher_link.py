"""A launcher's end of its link to the coordinator."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable

from holdfast.analysis.scene.node_view import Farewell
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import (
    BadMessage,
    ChannelClosed,
    ChannelError,
    ChannelTimeout,
    CouldNotJoin,
    Refused,
    endpoint,
)
from holdfast.nodes.clock_exchange import boot_time, read_clocks
from holdfast.nodes.framed_stream import quoted
from holdfast.nodes.handshake import Introduction, Side
from holdfast.nodes.join import join
from holdfast.nodes.token import Token
from holdfast.run.nodes.link.beat import SIZE, BeatKey
from holdfast.run.nodes.link.beat_sockets import bound_socket
from holdfast.run.nodes.link.clock_offset import (
    EVERY,
    SAMPLES,
    BothClocks,
    BothSamples,
    CoordinatorClock,
    read_both,
)
from holdfast.run.nodes.link.coordinator_link import BEAT_EVERY, LARGEST, LAST_WORDS, PULSE_EVERY
from holdfast.run.nodes.link.fencing import LATE, OWN_ENDING, SignsOfLife, lease_is_over
from holdfast.run.nodes.link.interface import CoordinatorLost
from holdfast.run.nodes.link.link_thread import LinkThread
from holdfast.run.nodes.link.outbox import Inbox, Outbox
from holdfast.run.nodes.link.report_codec import ReportEncoder, ReportUpdate
from holdfast.run.nodes.link.wire_messages import (
    ClockAnswer,
    ClockQuestion,
    ComeLater,
    FromCoordinator,
    Hello,
    LinkEnds,
    Ordered,
    Pulse,
    Resume,
    Said,
    Welcome,
)
from holdfast.run.nodes.messages import (
    Admitted,
    Leaving,
    NodeCard,
    NodeReport,
    ToCoordinator,
    ToLauncher,
)

CONNECTION_REFUSED = os.strerror(errno.ECONNREFUSED)
TRY_AGAIN = 2.0
"""seconds of tries to reach the coordinator again, before what was seen is looked at"""

TRY_LATER = 0.5
BEATS_PASS = 1.5
"""seconds without a datagram of a coordinator whose port refuses us, until it counts as gone"""


class JoinedLink:
    """Joins when it is made: errors of nodes/join come out of here. A broken connection is made
    again, and nothing that was said is lost with it; a link that is `lost` stays so."""

    admitted: Admitted
    coordinator: str
    coordinator_address: str
    own_address: str

    def __init__(
        self,
        host: str,
        port: int,
        *,
        token: Token,
        card: NodeCard,
        seconds: float,
        rendezvous_id: str = "",
    ) -> None:
        self._card = card
        self._port = port
        self._token = token
        self._me = Introduction(node=card.name, run=rendezvous_id)
        self._inbox = Inbox()
        self._outbox: Outbox[ToCoordinator | ReportUpdate] = Outbox()
        self._reports = ReportEncoder()
        self._clock = CoordinatorClock()
        self._answers: dict[int, asyncio.Future[BothClocks]] = {}
        self._datagrams_came = False
        self._confirmed = 0
        """the highest number of the coordinator's signs of life"""
        self._lost: CoordinatorLost | None = None
        self._is_connected = False
        self._connected_at = 0.0
        """when the kernels last had a connection to it"""
        self._extend: Callable[[float], None] = lambda _: None
        self._datagrams: socket.socket | None = None
        self._thread: LinkThread[ToLauncher] = LinkThread("holdfast-link")
        self._thread.start(self._main(host, seconds))

    # --- the agent's thread ---

    def news(self) -> list[ToLauncher]:
        return self._thread.news()

    def wait(self, seconds: float) -> None:
        self._thread.wait(seconds)

    def send(self, message: ToCoordinator) -> None:
        self._thread.call(self._post, message)

    def silent(self) -> float:
        return boot_time() - self._heard_at

    def keep_fenced(self, extend: Callable[[float], None]) -> None:
        self._extend = extend
        extend(self._signs.ranks_end_at(self.admitted.lease))

    def lost(self) -> CoordinatorLost | None:
        self._look()
        return self._lost

    def close(self, why: str = "") -> None:
        """With a reason: the job goes on without this node, whose ranks are gone."""
        if why:
            self.send(Leaving(why=why))
        self._thread.call(self._stop.set)
        self._thread.join(LAST_WORDS + 5.0)

    # --- the link's own thread ---

    async def _main(self, host: str, seconds: float) -> None:
        self._stop = asyncio.Event()
        self._to_write = asyncio.Event()
        self._over = asyncio.Event()
        end = time.monotonic() + seconds
        channel, welcome = await self._joined(host, end)
        self._heard_at = boot_time()
        self._signs = SignsOfLife(self._heard_at)
        self._stream = welcome.stream
        self._beats_in = BeatKey(self._token, self._stream, Side.COORDINATOR)
        self._beats_out = BeatKey(self._token, self._stream, Side.MEMBER)
        self.admitted, self.coordinator = welcome.admitted, channel.node
        self._reached(channel, welcome)
        beating = asyncio.ensure_future(self._beat())
        try:
            await self._stay(channel)
        finally:
            beating.cancel()
            self._close_datagrams()
        if not self._thread.is_ready:
            raise ChannelClosed(channel.peer, self._lost.words if self._lost else "is gone")

    async def _stay(self, channel: Channel | None) -> None:
        """Until `close`, or until the coordinator is lost."""
        while channel and not self._lost:
            problem = await self._talk(channel)
            self._is_connected = False
            await channel.close()
            if self._stop.is_set():
                return
            channel = await self._again(problem)

    async def _joined(self, host: str, end: float) -> tuple[Channel, Welcome]:
        """An earlier launcher of this name may have to be given up first."""
        while True:
            channel = await self._connected(host, max(0.1, end - time.monotonic()))
            try:
                return channel, await self._greeted(channel, Hello(self._card, time.time()), end)
            except Refused:
                if time.monotonic() + TRY_LATER >= end:
                    raise
            await asyncio.sleep(TRY_LATER)

    async def _connected(self, host: str, seconds: float) -> Channel:
        return await join(
            host,
            self._port,
            token=self._token,
            understands=FromCoordinator,
            me=self._me,
            seconds=seconds,
            limit=LARGEST,
        )

    async def _greeted(self, channel: Channel, hello: Hello | Resume, end: float) -> Welcome:
        try:
            await channel.send(hello)
            answer = await channel.receive(seconds=max(0.1, end - time.monotonic()))
        except BaseException:
            await channel.close()
            raise
        if isinstance(answer, Welcome):
            return answer
        await channel.close()
        named = isinstance(answer, (LinkEnds, ComeLater))
        why = quoted(answer.why.encode()) if named else "it sent no welcome"
        raise Refused(f"{channel.node} ({channel.peer})", why)

    async def _again(self, problem: str) -> Channel | None:
        """A new connection in place of the one that broke; None when the coordinator is lost."""
        while not (self._lost or self._stop.is_set()):
            if channel := await self._one_more_try(problem):
                return channel
        return None

    async def _one_more_try(self, problem: str) -> Channel | None:
        where = self.coordinator_address
        try:
            channel = await self._connected(where, TRY_AGAIN)
            hello = Resume(self._card, self._stream, self._inbox.received)
            welcome = await self._greeted(channel, hello, time.monotonic() + TRY_AGAIN)
        except CouldNotJoin as failed:
            if failed.last == CONNECTION_REFUSED and self.silent() > BEATS_PASS:
                at = endpoint(where, self._port)
                words = f"{problem}; nothing listens at {at} any more"
                # a firewall may refuse in its name, but then its datagrams would still come
                self._lose("closed", words, ended=self._datagrams_came)
        except (ChannelClosed, ChannelTimeout):
            pass
        except ChannelError as failed:
            self._lose("closed", failed.sentence)
        else:
            self._reached(channel, welcome)
            return channel
        return None

    def _reached(self, channel: Channel, welcome: Welcome) -> None:
        self._is_connected, self._connected_at = True, boot_time()
        self._outbox.start_again(welcome.received)
        self.own_address, self.coordinator_address = channel.own_end[0], channel.peer_end[0]
        self._close_datagrams()
        with contextlib.suppress(OSError):  # then TCP has to do
            self._datagrams = bound_socket(self.own_address, 0)
            self._datagrams.connect(channel.peer_end)
            asyncio.get_running_loop().add_reader(self._datagrams, self._read_datagrams)

    def _close_datagrams(self) -> None:
        if self._datagrams:
            asyncio.get_running_loop().remove_reader(self._datagrams)
            self._datagrams.close()
            self._datagrams = None

    async def _beat(self) -> None:
        while True:
            self._look()
            if self._lost:
                self._over.set()
                return
            number = self._signs.next_number(boot_time())
            if self._datagrams:
                with contextlib.suppress(OSError):
                    self._datagrams.send(self._beats_out.pack(number, self._confirmed))
            await asyncio.sleep(BEAT_EVERY)

    def _read_datagrams(self) -> None:
        with contextlib.suppress(OSError):
            while self._datagrams:
                if beat := self._beats_in.open(self._datagrams.recv(SIZE + 1)):
                    self._datagrams_came = True
                    self._heard(beat.number, beat.confirmed)

    def _heard(self, number: int = 0, confirmed: int = 0) -> None:
        self._heard_at = boot_time()
        self._confirmed = max(self._confirmed, number)
        self._signs.confirmed(confirmed)
        if not self._lost:
            self._extend(self._signs.ranks_end_at(self.admitted.lease))

    def _look(self) -> None:
        now = boot_time()
        terms = self.admitted.lease
        if self._is_connected:
            self._connected_at = now
        over = lease_is_over(self._signs, now, terms, connected_at=self._connected_at)
        if over and not self._lost:
            silent = now - self._heard_at
            words = (
                f"nothing from the coordinator for {silent:.1f} s"
                if silent > LATE
                else f"the coordinator has not heard this node for {terms.seconds:g} s"
            )
            self._lose("silent", words)

    def _lose(self, farewell: Farewell, words: str, *, ended: bool = False) -> None:
        if not self._lost:
            silent = boot_time() - self._heard_at
            self._lost = CoordinatorLost(farewell, words, silent, others_may_start=not ended)
            if not ended and self.admitted.lease.patient:
                self._extend(boot_time() + OWN_ENDING)

    # --- one connection ---

    async def _talk(self, channel: Channel) -> str:
        """Why it ended, in words; by `close` after the last words are delivered."""
        tasks = [
            asyncio.ensure_future(part)
            for part in (
                self._receive(channel),
                self._write(channel),
                self._pulse(channel),
                self._compare_clocks(channel),
                self._until_over(),
            )
        ]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for question in self._answers.values():
            question.cancel()
        self._answers.clear()
        try:
            for task in done:
                task.result()
        except ChannelError as problem:
            return problem.sentence
        return ""

    async def _until_over(self) -> None:
        """The last words are delivered, or the coordinator is lost."""
        over = asyncio.ensure_future(self._over.wait())
        stop = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({over, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
            stop.cancel()
        end = time.monotonic() + LAST_WORDS
        while not (self._lost or self._outbox.empty) and time.monotonic() < end:
            await asyncio.sleep(0.02)

    async def _receive(self, channel: Channel) -> None:
        while not self._lost:
            message = await channel.receive(seconds=None)
            self._heard()
            if isinstance(message, Pulse):
                self._heard(message.number, message.confirmed)
                self._outbox.acknowledged(message.received)
                self._clock.their_wall(message.wall)
            elif isinstance(message, Ordered):
                await self._ordered(channel, message)
            elif isinstance(message, ClockAnswer):
                self._heard(confirmed=message.number)
                waiting = self._answers.get(message.number)
                if waiting and not waiting.done():
                    waiting.set_result(BothClocks(message.wall, message.monotonic))
            elif isinstance(message, LinkEnds):
                farewell: Farewell = "left" if message.done else "closed"
                self._lose(farewell, quoted(message.why.encode()), ended=message.done)

    async def _ordered(self, channel: Channel, message: Ordered) -> None:
        try:
            new = self._inbox.takes(message.number)
        except ValueError as problem:
            raise BadMessage(channel.peer, f"sent {problem}") from None
        if new:
            self._thread.put(message.message)
        await self._acknowledge(channel)

    async def _write(self, channel: Channel) -> None:
        while True:
            self._to_write.clear()
            while message := self._outbox.unwritten():
                await channel.send(Said(*message))
            await self._to_write.wait()

    async def _pulse(self, channel: Channel) -> None:
        while True:
            await self._acknowledge(channel)
            await asyncio.sleep(PULSE_EVERY)

    async def _acknowledge(self, channel: Channel) -> None:
        number = self._signs.next_number(boot_time())
        await channel.send(Pulse(number, self._confirmed, self._inbox.received))

    async def _compare_clocks(self, channel: Channel) -> None:
        """The first answer is enough to begin with; more make it more precise."""
        while True:
            samples: list[BothSamples] = []
            for _ in range(SAMPLES):
                samples.append(await self._clock_sample(channel))
                if not self._thread.is_ready:
                    self._clock.compared(samples)
                    self._thread.ready()
            self._clock.compared(samples)
            await asyncio.sleep(EVERY)

    async def _clock_sample(self, channel: Channel) -> BothSamples:
        number = self._signs.next_number(boot_time())
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        asked = read_both()
        await channel.send(ClockQuestion(number))
        there = await answer
        del self._answers[number]
        return BothSamples(asked, there, read_both())

    def _post(self, message: ToCoordinator) -> None:
        if self._lost:
            return
        if self._outbox.full:
            self._lose("closed", "the coordinator did not read what was sent to it")
            return
        if isinstance(message, NodeReport):
            self._clock.own_wall(read_clocks())
            update = self._reports.update(message, self._clock.shift, self._clock.bound)
            self._outbox.add(update)
        else:
            self._outbox.add(message)
        self._to_write.set()
