"""Trials of the paths between nodes, as the coordinator leads them; pure, the clock is passed in.

First all nodes of a trial listen, then all of them try. A node that does not answer in time is
left out, and what the others saw of it is not held against the path: see `PathProbes.silent`.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from holdfast.analysis.nodes import PathLoss, PathSizes, Reached, RouteTo, Target
from holdfast.analysis.nodes.targets import MOST, measured_pairs
from holdfast.analysis.scene.node_view import PathProbes
from holdfast.nodes.probing.messages import (
    OpenedListeners,
    OpenListeners,
    ProbeReply,
    ProbeRequest,
    TriedPaths,
    TryPaths,
)
from holdfast.nodes.probing.plan import PATH_SECONDS, without_lost

LISTEN_SECONDS = 4.0
"""for a node to open its listeners: it may be busy starting ranks"""
TRY_SECONDS = 4 * PATH_SECONDS + 2.0
"""a path that swallows packets is tried at several sizes before it is believed"""

Addresses = tuple[tuple[str, str], ...]
"""interface and address"""
Pair = tuple[str, str]
"""from, to"""


class TrialOutcome(PathProbes, frozen=True):
    """`silent`: nodes that were asked and gave no answer."""

    routes: tuple[RouteTo, ...] = ()
    pairs: tuple[Pair, ...] = ()


@dataclass
class _Trial:
    number: int
    pairs: tuple[Pair, ...]
    until: float
    addresses: Mapping[str, frozenset[str]]
    """of each node, at which it was asked to listen"""
    key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    targets: dict[str, tuple[Target, ...]] = field(default_factory=dict)
    trying: bool = False
    began: float = 0.0
    """when the nodes were asked to try"""
    asked: set[str] = field(default_factory=set)
    tried: dict[str, TriedPaths] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node for pair in self.pairs for node in pair))


class PathTrials:
    """One trial at a time; pairs that are asked for meanwhile are tried after it."""

    def __init__(self) -> None:
        self._count = 0
        self._trial: _Trial | None = None
        self._wanted: dict[Pair, None] = {}
        self.newest: TrialOutcome | None = None

    def want(self, pairs: Collection[Pair]) -> None:
        self._wanted.update(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))

    @property
    def busy(self) -> bool:
        return self._trial is not None or bool(self._wanted)

    def look(
        self, now: float, nodes: Mapping[str, Addresses]
    ) -> Iterator[tuple[str, ProbeRequest]]:
        """What is to be sent to whom now; `nodes` are those that can be asked."""
        if self._trial is None and self._wanted:
            yield from self._begin(now, nodes)
        if self._trial is None:
            return
        trial = self._trial
        trial.silent |= set(trial.nodes) - nodes.keys()
        if not trial.trying and (now >= trial.until or self._all_listen(trial)):
            trial.trying, trial.began, trial.until = True, now, now + TRY_SECONDS
            trial.silent |= set(trial.nodes) - trial.targets.keys()
            yield from self._try(trial)
        if trial.trying and (
            now >= trial.until or trial.asked <= trial.tried.keys() | trial.silent
        ):
            trial.silent |= trial.asked - trial.tried.keys()
            self.newest, self._trial = _outcome(trial), None

    def heard(self, node: str, reply: ProbeReply) -> None:
        trial = self._trial
        if trial is None or reply.trial != trial.number or node not in trial.nodes:
            return
        if isinstance(reply, OpenedListeners):
            # All others are going to connect there: a node names its own addresses only.
            own = trial.addresses.get(node, frozenset())
            mine = {
                target.address: target
                for target in reply.listening.targets
                if target.node == node and target.address in own
            }
            trial.targets.setdefault(node, tuple(mine.values()))
        else:
            trial.tried.setdefault(node, reply)

    def _begin(
        self, now: float, nodes: Mapping[str, Addresses]
    ) -> Iterator[tuple[str, ProbeRequest]]:
        pairs = tuple(pair for pair in self._wanted if pair[0] in nodes and pair[1] in nodes)
        self._wanted.clear()
        if not pairs:
            return
        self._count += 1
        asked = {name: frozenset(ip for _, ip in own[:MOST]) for name, own in nodes.items()}
        trial = self._trial = _Trial(
            self._count, pairs, until=now + LISTEN_SECONDS, addresses=asked
        )
        for node in trial.nodes:
            yield (
                node,
                OpenListeners(
                    trial=trial.number,
                    node=node,
                    addresses=nodes[node][:MOST],
                    master_port=0,
                    key=trial.key,
                ),
            )

    @staticmethod
    def _all_listen(trial: _Trial) -> bool:
        return set(trial.nodes) <= trial.targets.keys() | trial.silent

    @staticmethod
    def _try(trial: _Trial) -> Iterator[tuple[str, ProbeRequest]]:
        measured = set(measured_pairs(dict.fromkeys(trial.nodes, "")))
        for source in trial.targets:
            others = [to for start, to in trial.pairs if start == source and to in trial.targets]
            if not others:
                continue
            trial.asked.add(source)
            yield (
                source,
                TryPaths(
                    trial=trial.number,
                    node=source,
                    targets=tuple(t for other in others for t in trial.targets[other]),
                    in_depth=tuple(other for other in others if (source, other) in measured),
                    key=trial.key,
                    seconds=PATH_SECONDS,
                ),
            )


def _outcome(trial: _Trial) -> TrialOutcome:
    here = set(trial.nodes) - trial.silent
    tried = [without_lost(one, here) for one in trial.tried.values()]
    reach: list[Reached] = [found for one in tried for found in one.reach]
    sizes: list[PathSizes] = [found for one in tried for found in one.sizes]
    losses: list[PathLoss] = [found for one in tried for found in one.losses]
    return TrialOutcome(
        at=trial.began,
        reach=tuple(reach),
        sizes=tuple(sizes),
        losses=tuple(losses),
        silent=tuple(sorted(trial.silent)),
        routes=tuple(found for one in tried for found in one.routes),
        pairs=trial.pairs,
    )
