"""When a launcher must have ended its ranks, and when a round may start without it. Pure.

A launcher numbers what it sends as a sign of life, and notes when it sent each. The coordinator
confirms the highest number that it heard. So the launcher knows, by its own clock alone, a moment
before which the coordinator cannot have heard it last; from then it has FENCE seconds. The
coordinator gives it up after more than that, counted from a later moment, and then waits for the
ranks to be gone. Delays on the way make the launcher's time shorter, never the coordinator's; a
late loop of the coordinator makes only its own time longer.

So it is where the others may start without a node: with `--nnodes MIN:MAX`, or etcd. With a fixed
number no round starts before it is back, and silence is no proof: a launcher that is stopped, or
suspended with its ranks, goes on where it was. There the lease is patient: while the kernels at
both ends keep the connection, both launchers exist, and only what comes after its end counts.
"""

from __future__ import annotations

import math
from collections import deque

import msgspec

from holdfast.nodes.keepalive import GONE_SECONDS
from holdfast.nodes.lease import Hearing, Lease

LATE = 2.5
FENCE = 7.0
"""seconds after the last sign of life that is known to have been heard"""
PATIENT = 60.0
"""the same where nothing is lost by waiting"""
SHORTEST, LONGEST = 3.0, 86400.0
GIVEN_UP = 0.5
"""seconds later the coordinator gives it up"""
OWN_ENDING = 1.5
"""seconds that a launcher has, once its time is over, to see that and to end its ranks; then the
kernel does it (run/launch/rank_fence.py)"""
ENDING = 4.0
"""seconds from when a launcher is given up until its ranks have ended, by the kernel at the latest
"""
COME_BACK = 1.5
"""seconds without a connection, when nothing else is heard of the launcher either"""
BEATS_ALONE = 12.0
"""seconds without a word on the connection in which datagrams still count: after a cut of
5 s, TCP's next try may be 7 s away; but a node that can only be heard cannot be told anything"""
BEATS_AFTER_CLOSE = 4.0


class LeaseTerms(msgspec.Struct, frozen=True):
    """Of one run: the coordinator's, which every launcher learns when it joins."""

    seconds: float = FENCE
    patient: bool = False
    """no round starts without a node that may still have ranks: see above"""

    @property
    def lease(self) -> Lease:
        """By which the coordinator judges silence."""
        return Lease(late=LATE, lost=self.seconds + GIVEN_UP)

    @property
    def gone_after(self) -> float:
        """Seconds of silence after which a launcher has ended its ranks, whatever became of it."""
        fence = max(self.seconds, GONE_SECONDS + LATE) if self.patient else self.seconds
        return fence + GIVEN_UP + ENDING

    @property
    def closed_for(self) -> float:
        """The same for one that its own kernel hung up, and that was started again there: it only
        has to have been silent for so long as its ranks need to end."""
        return min(self.seconds, FENCE) + GIVEN_UP + ENDING


SHORT_LEASE = LeaseTerms()


def terms_for(*, least: int, most: int, elected: bool, typed: float | None) -> LeaseTerms:
    """`typed`: by --lease; `elected`: another node may become the coordinator."""
    patient = least == most and not elected
    return LeaseTerms(typed or (PATIENT if patient else FENCE), patient)


class SignsOfLife:
    """What one side sent, and what of it the other side is known to have heard.

    A launcher passes times of CLOCK_BOOTTIME, which goes on while the machine sleeps; being late
    itself gives it nothing.
    """

    def __init__(self, now: float) -> None:
        self._number = 0
        self._sent: deque[tuple[int, float]] = deque(maxlen=512)
        self._safe_from = now

    def next_number(self, now: float) -> int:
        """Of a sign of life that is sent at `now` or later."""
        self._number += 1
        self._sent.append((self._number, now))
        return self._number

    def confirmed(self, number: int) -> None:
        """The other side heard this one."""
        while self._sent and self._sent[0][0] <= number:
            self._safe_from = max(self._safe_from, self._sent.popleft()[1])

    def unconfirmed(self, now: float) -> float:
        """Seconds since the last moment from which on the other side may not have heard us."""
        return now - self._safe_from

    def ranks_end_at(self, terms: LeaseTerms) -> float:
        """By then no rank of a launcher may run, whatever became of it, as far as is known now.
        Where the lease is patient, whether it is over is to be asked, not counted."""
        return math.inf if terms.patient else self._safe_from + terms.seconds + OWN_ENDING

    def not_counted(self, seconds: float) -> None:
        """For a coordinator that was late itself; never for a launcher."""
        self._safe_from += seconds


def lease_is_over(
    signs: SignsOfLife, now: float, terms: LeaseTerms, *, connected_at: float = 0.0
) -> bool:
    """On a launcher: its ranks must end. `connected_at`: when the kernels last had a connection
    between the two launchers. One that was suspended itself finds it as it was, or is told at its
    first word that it was given up."""
    if signs.unconfirmed(now) < terms.seconds:
        return False
    return not terms.patient or now - connected_at >= max(LATE, terms.seconds - GONE_SECONDS)


def beats_count(*, spoken: float, closed: float | None) -> bool:
    """Whether a datagram counts as heard: `spoken` seconds after the last word on the connection,
    `closed` seconds after its end."""
    return spoken <= BEATS_ALONE if closed is None else closed <= BEATS_AFTER_CLOSE


def hearing_of(
    silent: float, *, deaf: float, closed: float | None, timed_out: bool, terms: LeaseTerms
) -> Hearing:
    """`deaf`: seconds for which it has not confirmed that it hears us: its ranks end for that.
    `closed`: seconds since the connection ended; None while there is one. `timed_out`: its kernel
    had no part in that."""
    lease = terms.lease
    if terms.patient and closed is None:
        return Hearing.LATE if max(silent, deaf) >= lease.late else Hearing.HEARD
    hung_up = closed is not None and not (terms.patient and timed_out)
    if hung_up and min(silent, closed or 0.0) >= COME_BACK:
        return Hearing.LOST
    return Hearing.LOST if deaf >= lease.lost else lease.hearing(silent)
