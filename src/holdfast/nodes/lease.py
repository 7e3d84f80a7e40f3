"""Is a node heard, late or lost? Pure: the clock is passed in, in monotonic seconds.

Not heard is not silent: while a node is late, nothing is known of it. When our own loop was late,
the machine was suspended or starved, and what the nodes sent in that time has not been read yet:
all clocks start again, so that no node is lost because we did not listen.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import NamedTuple

LATE_LOOK = 1.0
"""seconds between two looks after which our own loop was late"""


class Hearing(enum.Enum):
    HEARD = "heard"
    LATE = "late"
    LOST = "lost"


@dataclasses.dataclass(frozen=True)
class Lease:
    """A node must be heard within `late` seconds, and is given up after `lost`."""

    late: float
    lost: float

    def __post_init__(self) -> None:
        if not 0 < self.late < self.lost:
            raise ValueError(f"late and lost must be 0 < late < lost, got {self.late}, {self.lost}")

    def hearing(self, silent: float) -> Hearing:
        if silent >= self.lost:
            return Hearing.LOST
        return Hearing.LATE if silent >= self.late else Hearing.HEARD


class NodeHearing(NamedTuple):
    hearing: Hearing
    silent: float
    """seconds in which we listened and heard nothing"""
    reason: str


class Leases:
    """When each node was heard last. Call `look` at least once a second."""

    def __init__(self, lease: Lease, nodes: Iterable[str], *, now: float) -> None:
        self._lease = lease
        self._heard = dict.fromkeys(nodes, now)
        self._lost: set[str] = set()
        self._looked = now

    def heard(self, node: str, *, now: float) -> None:
        """Any message counts. A node that was lost and is heard again is back: what that means is
        for the caller to decide."""
        self._heard[node] = now
        self._lost.discard(node)

    def look(self, now: float) -> dict[str, NodeHearing]:
        if now - self._looked > LATE_LOOK:
            for node in self._heard.keys() - self._lost:
                self._heard[node] = now
        self._looked = now
        return {node: self._judge(node, now) for node in self._heard}

    def _judge(self, node: str, now: float) -> NodeHearing:
        silent = now - self._heard[node]
        hearing = self._lease.hearing(silent)
        if hearing is Hearing.LOST:
            self._lost.add(node)
        return NodeHearing(hearing, silent, self._reason(node, hearing, silent))

    def _reason(self, node: str, hearing: Hearing, silent: float) -> str:
        if hearing is Hearing.HEARD:
            return f"{node} was heard {silent:.1f} s ago"
        limit = f"late after {self._lease.late:g} s, lost after {self._lease.lost:g} s"
        return f"nothing from {node} for {silent:.1f} s ({limit})"
