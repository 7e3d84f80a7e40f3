"""One launcher, as its coordinator knows it over all its connections. Touches no socket."""

from __future__ import annotations

import asyncio
import errno
import math
import os
import secrets

from holdfast.analysis.scene.node_view import Farewell
from holdfast.nodes.channel import Channel
from holdfast.nodes.handshake import Side
from holdfast.nodes.lease import Hearing
from holdfast.nodes.token import Token
from holdfast.run.nodes.link import fencing
from holdfast.run.nodes.link.beat import BeatKey
from holdfast.run.nodes.link.beat_sockets import Came
from holdfast.run.nodes.link.fencing import SHORT_LEASE, LeaseTerms
from holdfast.run.nodes.link.interface import Heard
from holdfast.run.nodes.link.outbox import Inbox, Outbox
from holdfast.run.nodes.link.report_codec import ReportDecoder
from holdfast.run.nodes.messages import NodeCard, ToLauncher

NOT_HEARD = {
    os.strerror(code)
    for code in (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN)
}
"""ends of a connection that its peer had no part in"""
ANSWER_COUNTS = 10.0
"""seconds"""


class MemberStream:
    def __init__(
        self,
        name: str,
        card: NodeCard,
        token: Token,
        now: float,
        *,
        terms: LeaseTerms = SHORT_LEASE,
    ) -> None:
        self.name = name
        self.terms = terms
        self.card = card
        self.stream = secrets.token_bytes(16)
        self.beats_in = BeatKey(token, self.stream, Side.MEMBER)
        self.beats_out = BeatKey(token, self.stream, Side.COORDINATOR)
        self.beats_to: Came | None = None
        """where its last datagram came to, and from"""
        self.inbox = Inbox()
        self.outbox: Outbox[ToLauncher] = Outbox()
        self.decoder = ReportDecoder()
        self.to_write = asyncio.Event()
        self.confirmed = 0
        """the highest number of its signs of life"""
        self.signs = fencing.SignsOfLife(now)
        """ours, to it"""
        self.machine: tuple[str, int] | None = None
        """where it is asked whether the machine answers; None where nothing tells"""
        self.machine_answered = False
        """while all was well"""
        self._machine_answers: bool | None = None
        self._machine_answered_at = -math.inf
        self.probing: asyncio.Task[None] | None = None
        self.channel: Channel | None = None
        self.lost = False
        self.farewell: Farewell = ""
        self.words = ""
        self._heard_at = now
        self._spoke_at = now
        self._closed_at: float | None = None
        self._ranks_gone = False
        """by its own word"""

    def opened(self, card: NodeCard, received: int, now: float) -> None:
        self.card = card
        self.outbox.start_again(received)
        self.to_write.set()
        self._closed_at = None
        self.farewell, self.words = "", ""
        self._machine_answers, self._machine_answered_at = None, -math.inf
        self.spoke(0, 0, now)

    def closed(self, words: str, now: float) -> None:
        """By its kernel, or by ours when nothing came from there for too long."""
        self.channel = None
        self._closed_at = now
        if not self.lost:
            self.farewell, self.words = "silent" if words in NOT_HEARD else "closed", words

    def spoke(self, number: int, confirmed: int, now: float) -> None:
        """Something came on its connection."""
        self._spoke_at = now
        self._sign(number, confirmed, now)

    def beat(self, number: int, confirmed: int, now: float) -> None:
        """A datagram came."""
        if self.beats_count(now):
            self._sign(number, confirmed, now)

    def _sign(self, number: int, confirmed: int, now: float) -> None:
        self._heard_at = now
        self.confirmed = max(self.confirmed, number)
        self.signs.confirmed(confirmed)

    def beats_count(self, now: float) -> bool:
        return not self.lost and fencing.beats_count(
            spoken=now - self._spoke_at, closed=self._closed_for(now)
        )

    def _closed_for(self, now: float) -> float | None:
        return None if self._closed_at is None else now - self._closed_at

    def loop_was_late(self, seconds: float) -> None:
        """We did not listen: what it sent meanwhile has not been read yet. Only that time does not
        count: who is late again and again still loses a dead node."""
        if not self.lost:
            self._heard_at += seconds
            self._spoke_at += seconds
            self.signs.not_counted(seconds)
            if self._closed_at is not None:
                self._closed_at += seconds

    def leaves(self, words: str, *, ranks_gone: bool = True) -> None:
        self.lost, self.farewell, self.words = True, "left", words
        self._ranks_gone = ranks_gone

    def given_up(self, words: str) -> None:
        self.lost, self.farewell, self.words = True, "closed", words

    def judge(self, now: float) -> Heard:
        """Once lost, it stays lost."""
        silent = now - self._heard_at
        deaf = self.signs.unconfirmed(now)
        hearing = fencing.hearing_of(
            silent,
            deaf=deaf,
            closed=self._closed_for(now),
            timed_out=self.farewell == "silent",
            terms=self.terms,
        )
        if hearing is Hearing.LOST and not self.lost:
            self.lost = True
            if self.farewell == "":
                self.farewell = "silent"
                self.words = (
                    f"nothing for {silent:.1f} s"
                    if silent >= fencing.LATE
                    else f"it has not heard this node for {deaf:.1f} s"
                )
        if self.lost:
            hearing = Hearing.LOST
        return Heard(
            hearing=hearing.value,
            silent=silent,
            farewell=self.farewell if self.lost else "",
            words=self.words if self.lost else "",
            machine_answers=None if hearing is Hearing.HEARD else self._machine_answers,
            lost_at=self._lost_at(now, max(silent, deaf)),
            fenced=self.lost and (self._ranks_gone or self._is_gone(silent)),
        )

    def _lost_at(self, now: float, silent: float) -> float:
        if self.lost:
            return -math.inf
        return math.inf if self.terms.patient else now + self.terms.lease.lost - silent

    def _is_gone(self, silent: float) -> bool:
        """Its ranks have ended. A launcher that is stopped on a machine that answers cannot end
        them: where the lease is patient they may run for longer."""
        stopped = self.terms.patient and self.farewell == "silent" and self._machine_answers
        return silent >= self.terms.gone_after and not stopped

    def is_followed_by(self, card: NodeCard, now: float) -> bool:
        """Whether another launcher may have its name: its ranks have ended."""
        if self.judge(now).fenced:
            return True
        own, again = self.card.boot_id, card.boot_id
        started_again = own == again and self.farewell == "closed"
        return self.lost and started_again and now - self._heard_at >= self.terms.closed_for

    def machine_asked(self, *, answered: bool, now: float) -> None:
        """One answer counts for a while: where packets get lost, the next one may not come."""
        if answered:
            self._machine_answers, self._machine_answered_at = True, now
        elif self.machine_answered and now > self._machine_answered_at + ANSWER_COUNTS:
            self._machine_answers = False

    def wants_probe(self, now: float) -> bool:
        """Once it is silent for a while, or its connection ended, and for a while after that, or
        for as long as its launcher may only be stopped."""
        silent = now - self._heard_at
        closed = self._closed_for(now)
        lately = silent < 60.0 or (self.terms.patient and bool(self._machine_answers))
        return (silent > 2 * fencing.LATE or closed is not None) and lately
