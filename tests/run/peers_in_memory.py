"""Other nodes of a run whose reports a test writes: for the watch, which sees no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.analysis.scene.node_view import PathProbes
from holdfast.run.nodes.messages import EndRound, NodeReport, RoundNode, RoundStart
from holdfast.run.watch.peers import PeerState


def a_round(**nproc: int) -> RoundStart:
    """`a_round(a=1, b=2)`: node a with rank 0, node b with ranks 1 and 2."""
    nodes, first = [], 0
    for name, count in nproc.items():
        nodes.append(RoundNode(name=name, first_rank=first, nproc=count, addresses=(name,)))
        first += count
    return RoundStart(
        round=1, attempt=0, nodes=tuple(nodes), store_node=nodes[0].name, store_port=1
    )


class PeersInMemory:
    def __init__(self, round_: RoundStart, *others: str, least: int = 1) -> None:
        self._round = round_
        self.least = least
        self.others: dict[str, PeerState] = {
            name: PeerState(hearing="heard", silent=0.0) for name in others
        }
        self.said: list[str] = []
        self.recorded: list[msgspec.Struct] = []
        self.orders: list[tuple[EndRound, tuple[str, ...]]] = []
        self.evidence_asked = 0
        self.aborted: list[int] = []
        self.waiting: tuple[str, ...] = ()
        self.events: list[tuple[int, dict[str, Any]]] = []
        self.probed: list[tuple[str, str]] = []
        self.answers_evidence = True

    def change(self, node: str, **what: Any) -> None:
        self.others[node] = msgspec.structs.replace(self.others[node], **what)

    def look(self, now: float) -> None:
        for name, state in self.others.items():
            if state.report is not None and state.hearing == "heard":
                number = self.evidence_asked if self.answers_evidence else state.report.evidence
                report: NodeReport = msgspec.structs.replace(state.report, evidence=number, at=now)
                self.change(name, report=report)

    def round(self) -> RoundStart | None:
        return self._round

    def states(self) -> Mapping[str, PeerState]:
        return self.others

    def new_events(self) -> list[tuple[int, dict[str, Any]]]:
        events, self.events = self.events, []
        return events

    def ask_for_evidence(self, number: int) -> None:
        self.evidence_asked = number

    def ask_for_probes(self, pairs: Sequence[tuple[str, str]]) -> None:
        self.probed += pairs

    def probes(self) -> PathProbes | None:
        return None

    def say(self, lines: Sequence[str], *, status: bool = False) -> None:
        if not status:
            self.said += lines

    def record(self, record: msgspec.Struct) -> None:
        self.recorded.append(record)

    def abort(self, ranks: Sequence[int]) -> None:
        self.aborted += ranks

    def end_round(self, order: EndRound, *, without: Sequence[str] = ()) -> None:
        self.orders.append((order, tuple(without)))

    def waiting_nodes(self) -> tuple[str, ...]:
        return self.waiting

    def can_do_without(self, nodes: Sequence[str]) -> bool:
        return 1 + len(self.others) - len(set(nodes) & set(self.others)) >= self.least
