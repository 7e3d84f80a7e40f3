"""Connections that have not proven the token yet: only so many at a time."""

from __future__ import annotations

from collections import Counter
from typing import Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """When there are too many, the address that holds most of them loses its oldest.

    A flood from one address so never pushes out a node at another; from many addresses, the oldest
    go first, and a node that was dropped tries again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: dict[T, str] = {}
        """in order of arrival"""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, connection: T, address: str) -> T | None:
        """The connection that has to go for it, if any; it is forgotten here."""
        self._waiting[connection] = address
        if len(self._waiting) <= self._most:
            return None
        counts = Counter(self._waiting.values())
        crowd = max(counts.values())
        dropped = next(one for one, where in self._waiting.items() if counts[where] == crowd)
        del self._waiting[dropped]
        return dropped

    def done(self, connection: T) -> None:
        self._waiting.pop(connection, None)
