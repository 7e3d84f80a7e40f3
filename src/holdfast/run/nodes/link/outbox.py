"""Messages that the other side may not have yet, numbered; pure."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

M = TypeVar("M")

MOST = 4000
"""messages; five a second from a launcher, a few a second from a coordinator"""


class Outbox(Generic[M]):
    """Kept until they are acknowledged; a new connection begins with what is left."""

    def __init__(self) -> None:
        self.last = 0
        self._kept: deque[tuple[int, M]] = deque()
        self._written = 0

    @property
    def full(self) -> bool:
        return len(self._kept) >= MOST

    @property
    def empty(self) -> bool:
        return not self._kept

    def add(self, message: M) -> None:
        self.last += 1
        self._kept.append((self.last, message))

    def acknowledged(self, number: int) -> None:
        while self._kept and self._kept[0][0] <= number:
            self._kept.popleft()

    def start_again(self, received: int) -> None:
        """On a new connection, to a side that has everything up to `received`."""
        self.acknowledged(received)
        self._written = received

    def unwritten(self) -> tuple[int, M] | None:
        """The next for this connection; it counts as written."""
        if self._written >= self.last or not self._kept:
            return None
        found = self._kept[max(0, self._written + 1 - self._kept[0][0])]
        self._written = found[0]
        return found


class Inbox:
    """Of what arrives: each number once, in order."""

    def __init__(self) -> None:
        self.received = 0

    def takes(self, number: int) -> bool:
        """False for one that is here already; a gap raises ValueError."""
        if number > self.received + 1:
            raise ValueError(f"message {number} came after message {self.received}")
        if number <= self.received:
            return False
        self.received = number
        return True
