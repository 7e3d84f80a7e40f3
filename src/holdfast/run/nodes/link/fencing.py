"""When a launcher must have ended its ranks, and when a round may start without it. Pure.

A launcher numbers what it sends as a sign of life, and notes when it sent each. The coordinator
confirms the highest number that it heard. So the launcher knows, by its own clock alone, a moment
before which the coordinator cannot have heard it last; from then it has FENCE seconds. The
coordinator gives it up after more than that, counted from a later moment, and then waits for the
ranks to be gone. Delays on the way make the launcher's time shorter, never the coordinator's; a
late loop of the coordinator makes only its own time longer.
"""

from __future__ import annotations

from collections import deque

from holdfast.nodes.lease import Hearing, Lease

LEASE = Lease(late=2.5, lost=7.5)
FENCE = 7.0
"""seconds after the last sign of life that is known to have been heard"""
ENDING = 4.0
"""seconds that a launcher has, once its time is over, to see that and to end its ranks"""
COME_BACK = 1.5
"""seconds without a connection, when nothing else is heard of the launcher either"""
BEATS_ALONE = 12.0
"""seconds without a word on the connection in which datagrams still count: after a cut of
5 s, TCP's next try may be 7 s away; but a node that can only be heard cannot be told anything"""
BEATS_AFTER_CLOSE = 4.0


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

    def start_again(self, now: float) -> None:
        """For a coordinator that was late itself; never for a launcher."""
        self._safe_from = max(self._safe_from, now)


def lease_is_over(signs: SignsOfLife, now: float) -> bool:
    """On a launcher: its ranks must end."""
    return signs.unconfirmed(now) >= FENCE


def beats_count(*, spoken: float, closed: float | None) -> bool:
    """Whether a datagram counts as heard: `spoken` seconds after the last word on the connection,
    `closed` seconds after its end."""
    return spoken <= BEATS_ALONE if closed is None else closed <= BEATS_AFTER_CLOSE


def hearing_of(silent: float, *, deaf: float, closed: float | None) -> Hearing:
    """`deaf`: seconds for which it has not confirmed that it hears us: its ranks end for that.
    `closed`: seconds since the connection ended; None while there is one."""
    if closed is not None and min(silent, closed) >= COME_BACK:
        return Hearing.LOST
    return Hearing.LOST if deaf >= LEASE.lost else LEASE.hearing(silent)


def fenced(silent: float) -> bool:
    """Whatever became of a launcher that was given up: its ranks have ended."""
    return silent >= LEASE.lost + ENDING
