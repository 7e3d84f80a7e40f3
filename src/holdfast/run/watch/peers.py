"""The other nodes of a run, as the watch of the coordinator sees them. One machine has none.

The watch runs on the agent's one thread; none of these calls may block. What crosses the network
is the business of run/nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from holdfast.analysis.scene.node_view import Farewell, Hearing, PathProbes
from holdfast.run.nodes.messages import EndRound, NodeReport, RoundStart, ToldToStop


class PeerState(msgspec.Struct, frozen=True, kw_only=True):
    """What the leases and the connection say of one other node of this round."""

    hearing: Hearing
    silent: float
    """seconds since anything was heard of it"""
    farewell: Farewell = ""
    farewell_words: str = ""
    machine_answers: bool | None = None
    told: ToldToStop | None = None
    told_at: float = 0.0
    report: NodeReport | None = None
    """the newest of this round"""


class NodePeers(Protocol):
    def look(self, now: float) -> None:
        """Take in what has come since; called at every look, 0.1 s."""

    def round(self) -> RoundStart | None:
        """The round that runs, with all its nodes; None on one machine."""

    def states(self) -> Mapping[str, PeerState]:
        """Every other node of this round, also those that are lost."""

    def new_events(self) -> list[tuple[int, dict[str, Any]]]:
        """What their ranks reported of checkpoints since this was last asked: rank and event."""

    def ask_for_evidence(self, number: int) -> None:
        """The answer is in the reports: `NodeReport.evidence`."""

    def ask_for_probes(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Have these nodes (from, to) try the paths between them now; may be asked again."""

    def probes(self) -> PathProbes | None:
        """The newest answers; None while there are none."""

    def say(self, lines: Sequence[str], *, status: bool = False) -> None:
        """On the screens of the other nodes."""

    def record(self, record: msgspec.Struct) -> None:
        """In the journals of the other nodes."""

    def abort(self, ranks: Sequence[int]) -> None:
        """SIGABRT to those of these ranks that are on other nodes."""

    def end_round(self, order: EndRound, *, without: Sequence[str] = ()) -> None:
        """The decision, to all of them. `without`: nodes that the next round leaves out."""

    def waiting_nodes(self) -> tuple[str, ...]:
        """Nodes that have joined and are in no round: spares, or back after a loss."""

    def can_do_without(self, nodes: Sequence[str]) -> bool:
        """Whether enough nodes are left for another round (`--nnodes MIN:MAX`)."""


class NoPeers:
    """One machine."""

    def look(self, now: float) -> None:
        pass

    def round(self) -> RoundStart | None:
        return None

    def states(self) -> Mapping[str, PeerState]:
        return {}

    def new_events(self) -> list[tuple[int, dict[str, Any]]]:
        return []

    def ask_for_evidence(self, number: int) -> None:
        pass

    def ask_for_probes(self, pairs: Sequence[tuple[str, str]]) -> None:
        pass

    def probes(self) -> PathProbes | None:
        return None

    def say(self, lines: Sequence[str], *, status: bool = False) -> None:
        pass

    def record(self, record: msgspec.Struct) -> None:
        pass

    def abort(self, ranks: Sequence[int]) -> None:
        pass

    def end_round(self, order: EndRound, *, without: Sequence[str] = ()) -> None:
        pass

    def waiting_nodes(self) -> tuple[str, ...]:
        return ()

    def can_do_without(self, nodes: Sequence[str]) -> bool:
        return not nodes
