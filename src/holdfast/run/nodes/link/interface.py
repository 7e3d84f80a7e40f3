"""What the agent's thread asks of the thread that talks to other nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from holdfast.analysis.nodes import ClockOffset
from holdfast.analysis.scene.node_view import Farewell, Hearing
from holdfast.run.nodes.messages import (
    Admitted,
    NodeCard,
    ToCoordinator,
    ToLauncher,
)


class NodeJoined(NamedTuple):
    """A launcher proved the token and gave its card; also when a broken connection is whole
    again, see `resumed`."""

    node: str
    """unique among the nodes of this run"""
    card: NodeCard
    reached_us_at: str
    """our own address, as it reached it: the ranks of that node can reach it too"""
    resumed: bool = False
    """it had joined before; what both sides said since is delivered now, nothing is missing"""
    clock: ClockOffset | None = None
    """of a node that joins, roughly: seconds matter, not milliseconds"""


class NodeSaid(NamedTuple):
    node: str
    message: ToCoordinator
    at: float
    """by our monotonic clock"""


class NodeClosed(NamedTuple):
    """Its connection is gone; it may be back in a moment. `heard` says when it is lost."""

    node: str
    why: str


CoordinatorNews = NodeJoined | NodeSaid | NodeClosed


class Heard(NamedTuple):
    hearing: Hearing
    silent: float
    farewell: Farewell
    words: str
    machine_answers: bool | None
    lost_at: float = math.inf
    """by our monotonic clock, if nothing more comes from it"""
    fenced: bool = False
    """its ranks have ended by now, whatever happened to it: a round without it may start"""


class CoordinatorLink(Protocol):
    """On the node that coordinates. A node that is lost stays lost: when its launcher is heard
    again it is told so, ends its ranks and joins as a new one."""

    port: int

    def news(self) -> list[CoordinatorNews]:
        """What has come since this was last asked, in order."""

    def wait(self, seconds: float) -> None:
        """Until there is news, at most so long."""

    def send(self, node: str, message: ToLauncher) -> None:
        """A node that is gone is passed over."""

    def heard(self) -> Mapping[str, Heard]:
        """Every node that has joined, as of at most 0.2 s ago."""

    def give_up(self, node: str, why: str) -> None:
        """Lose it though it is heard: it is told, and ends its ranks."""

    def turned_away(self) -> list[str]:
        """A sentence for each launcher that came and was not admitted, in order."""

    def end_with(self, lease: Callable[[], float]) -> None:
        """Where this node has a lease as well: once it is over, at that time of CLOCK_BOOTTIME,
        none of the others is told any more that it is heard."""

    def close(self) -> None:
        """After what was sent is with them, or a moment."""


class CoordinatorLost(NamedTuple):
    farewell: Farewell
    words: str
    silent: float
    others_may_start: bool = True
    """without this node, whose ranks must not outlive their lease; not when it has ended"""


class LauncherLink(Protocol):
    """On every other node."""

    admitted: Admitted
    coordinator: str
    """name of its node"""
    coordinator_address: str
    own_address: str
    """by which we reach it"""

    def news(self) -> list[ToLauncher]: ...

    def wait(self, seconds: float) -> None: ...

    def send(self, message: ToCoordinator) -> None:
        """Times in a report are changed to the coordinator's clocks here."""

    def silent(self) -> float:
        """Seconds since the coordinator was last heard."""

    def keep_fenced(self, extend: Callable[[float], None]) -> None:
        """`extend` is told the time of CLOCK_BOOTTIME at which no rank may be left, or inf while
        this launcher lives, now and whenever that changes; by the link's thread."""

    def lost(self) -> CoordinatorLost | None:
        """The lease is over: either it was not heard, or it does not hear us. Then this node's
        ranks must end at once: the others may start again without them. It stays lost: to
        go on, join again."""

    def close(self, why: str = "") -> None: ...
