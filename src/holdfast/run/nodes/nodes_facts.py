"""What the cards of launchers and a trial of paths say together, for the checks of nodes; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeVar

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import (
    ClockOffset,
    Node,
    NodesFacts,
    Outcome,
    PathLoss,
    PathSizes,
    PortKind,
    Reached,
    RouteTo,
    Target,
)
from holdfast.run.nodes.messages import NodeCard
from holdfast.run.nodes.path_trials import TrialOutcome

P = TypeVar("P", Reached, RouteTo, PathSizes, PathLoss)
NOT_ASKED = Unread(why="not asked before a start")
_ITSELF = ClockOffset(seconds=0.0, bound=0.0)


def machines(cards: Mapping[str, NodeCard]) -> dict[str, NodeCard]:
    """One launcher of each machine: several on one machine are on purpose here."""
    found: dict[tuple[str, frozenset[str]], str] = {}
    for name, card in cards.items():
        key = (card.boot_id or name, frozenset(card.addresses))
        found.setdefault(key, name)
    return {name: cards[name] for name in cards if name in found.values()}


def nodes_facts(
    cards: Mapping[str, NodeCard],
    *,
    coordinator: str,
    port: int,
    trial: TrialOutcome | None,
    clocks: Mapping[str, ClockOffset] = {},
) -> NodesFacts | None:
    """Of the launchers that were allowed to look at their machine; None for fewer than two."""
    nodes = tuple(
        Node(
            name=name,
            facts=card.facts,
            findings=(),
            boot_id=card.boot_id or NOT_ASKED,
            clock=_ITSELF if name == coordinator else clocks.get(name, NOT_ASKED),
            names=NOT_ASKED,
            store=None,
        )
        for name, card in cards.items()
        if card.facts is not None
    )
    if len(nodes) < 2:
        return None
    trial = trial and _between(trial, {node.name for node in nodes})
    not_tried = Unread(why="the paths were not tried yet")
    plan = next(
        (node.facts.plan for node in nodes if node.name == coordinator), nodes[0].facts.plan
    )
    return NodesFacts(
        plan=msgspec.structs.replace(plan, min_nodes=len(nodes), max_nodes=len(nodes)),
        nodes=nodes,
        absent=(),
        coordinator=coordinator,
        routes=trial.routes if trial else not_tried,
        reach=(*_meetings(trial, coordinator, port), *trial.reach) if trial else not_tried,
        sizes=trial.sizes if trial else not_tried,
        losses=trial.losses if trial else not_tried,
    )


def _between(trial: TrialOutcome, names: Collection[str]) -> TrialOutcome:
    def kept(found: tuple[P, ...]) -> tuple[P, ...]:
        return tuple(one for one in found if one.source in names and one.target.node in names)

    return msgspec.structs.replace(
        trial,
        routes=kept(trial.routes),
        reach=kept(trial.reach),
        sizes=kept(trial.sizes),
        losses=kept(trial.losses),
    )


def _meetings(trial: TrialOutcome, coordinator: str, port: int) -> list[Reached]:
    """Every launcher that is here came through the meeting port."""
    found: dict[str, Reached] = {}
    for one in trial.reach:
        if one.target.node == coordinator and one.source not in found:
            target = Target(
                node=coordinator,
                interface=one.target.interface,
                address=one.target.address,
                port=port,
                kind=PortKind.MASTER,
            )
            found[one.source] = Reached(
                source=one.source,
                target=target,
                outcome=Outcome.OK,
                error="",
                seconds=0.0,
                local_address=one.local_address,
            )
    return list(found.values())
