"""Where torch's agent gets its rounds from: one machine by itself, the coordinator, or a member."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from holdfast.run.nodes.messages import RoundNode, RoundStart

LOOPBACK = "127.0.0.1"
OpenStore = Callable[[Sequence[str], int], int]
"""serves the store of a round at these addresses of this node, on this port (0: a free one);
answers the port"""
ToldToEnd = Callable[[], "signal.Signals | None"]
"""the signal that asked this launcher to end, if one has come"""


class RoundPlace(NamedTuple):
    """A round, as one of its nodes has it."""

    start: RoundStart
    node: str
    """this one"""
    address: str
    """at which the ranks of this node reach the store"""

    @property
    def node_rank(self) -> int:
        return [node.name for node in self.start.nodes].index(self.node)

    @property
    def own(self) -> RoundNode:
        return self.start.nodes[self.node_rank]

    @property
    def world(self) -> int:
        return sum(node.nproc for node in self.start.nodes)

    def role_ranks(self) -> tuple[int, int]:
        """The first rank of this node among the ranks of its role, and how many those are."""
        counts = [node.nproc * (node.role == self.own.role) for node in self.start.nodes]
        return sum(counts[: self.node_rank]), sum(counts)


class RoundSource(Protocol):
    def next_round(self, open_store: OpenStore, told: ToldToEnd) -> RoundPlace:
        """Waits for it. Raises WaitInterrupted for a signal, JobIsOver when no round comes."""


class WaitInterrupted(Exception):  # noqa: N818 - its name is what happened
    """A signal came while a round was awaited."""


class JobIsOver(Exception):  # noqa: N818 - its name is what happened
    """No further round on this node. `sentence` has been said, here and on the other nodes."""

    def __init__(self, sentence: str, exit_code: int) -> None:
        super().__init__(sentence)
        self.sentence, self.exit_code = sentence, exit_code


class RoundsOfOneNode:
    """One machine: nothing has to be waited for."""

    def __init__(self, *, nproc: int, port: int = 0) -> None:
        """`port` 0 takes a free one in each round; any other is used in all of them."""
        self._nproc, self._port = nproc, port
        self._rounds = 0

    def next_round(self, open_store: OpenStore, told: ToldToEnd) -> RoundPlace:
        del told  # nothing is waited for
        self._rounds += 1
        start = RoundStart(
            round=self._rounds,
            attempt=self._rounds - 1,
            nodes=(RoundNode(name="localhost", first_rank=0, nproc=self._nproc),),
            store_node="localhost",
            store_port=open_store((LOOPBACK,), self._port),
        )
        return RoundPlace(start, "localhost", LOOPBACK)
