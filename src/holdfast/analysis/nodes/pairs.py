"""The worst that was seen on the way from one node to another: one sign a pair."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NamedTuple

from holdfast.analysis.machine import CouldNotLook, Unread
from holdfast.analysis.nodes import loss, owners, path_size, used_paths
from holdfast.analysis.nodes.facts import NodesFacts
from holdfast.analysis.nodes.path_size import SizeVerdict
from holdfast.analysis.nodes.paths import Outcome, PortKind, Reached
from holdfast.analysis.nodes.pattern import Pair
from holdfast.analysis.nodes.reachability import matrix


class PathSign(enum.Enum):
    """By how bad it is, the worst first."""

    DROPPED = "dropped"
    REJECTED = "rejected"
    REFUSED = "refused"
    NO_NEIGHBOUR = "no neighbour"
    NO_ROUTE = "no route"
    OWN_ADDRESS = "own address"
    STRANGER = "another host answered"
    FAILED = "failed"
    LARGE_LOST = "large packets are lost"
    LOSSY = "packets are lost"
    UNTRIED = "not tried"
    OK = "ok"


class PairState(NamedTuple):
    sign: PathSign
    partly: bool
    """on some ports or interfaces only"""


SIGNS = {outcome: PathSign[outcome.name] for outcome in Outcome}
SWALLOWED = (SizeVerdict.HANGS, SizeVerdict.VANISHES, SizeVerdict.UNTRIED)
RANK = {sign: place for place, sign in enumerate(PathSign)}


def pair_states(facts: NodesFacts) -> Mapping[Pair, PairState]:
    """Of every ordered pair of nodes, absent ones included (`UNTRIED`).

    By the rules of the faults that speak of them: addresses that no rank uses, and the master port
    of nodes that serve no store, make no path bad.
    """
    tried, measured, names = _tried(facts), _measured(facts), node_names(facts)
    return {
        (a, b): _state(tried.get((a, b), []), measured[a, b])
        for a in names
        for b in names
        if a != b
    }


def round_trips(facts: NodesFacts) -> Mapping[Pair, float]:
    """Median seconds of a small datagram there and back, of the pairs that were measured."""
    found: dict[Pair, float] = {}
    for one in () if isinstance(facts.losses, Unread) else facts.losses:
        if one.median_seconds is not None:
            pair = (one.source, one.target.node)
            found[pair] = min(found.get(pair, one.median_seconds), one.median_seconds)
    return found


def _tried(facts: NodesFacts) -> Mapping[Pair, list[PathSign]]:
    try:
        paths = used_paths.used(facts, matrix(facts))
        stores = owners.store_hosts(facts)
    except CouldNotLook:
        return {}
    return {
        pair: [SIGNS[one.outcome] for one in tries if _matters(one, stores)]
        for pair, tries in paths.by_pair.items()
    }


def _matters(one: Reached, stores: Collection[str]) -> bool:
    return one.target.kind is PortKind.EPHEMERAL or not stores or one.target.node in stores


def _measured(facts: NodesFacts) -> defaultdict[Pair, list[PathSign]]:
    """What sizes and loss add to it, by the rules of mtu-black-hole and packet-loss."""
    found: defaultdict[Pair, list[PathSign]] = defaultdict(list)
    losses = loss.directed(() if isinstance(facts.losses, Unread) else facts.losses)
    for pair in losses.beyond_chance():
        found[pair].append(PathSign.LOSSY)
    sizes = () if isinstance(facts.sizes, Unread) else facts.sizes
    for judged in path_size.judge_all(facts, sizes, losses):
        if judged.verdict in SWALLOWED:
            found[judged.path.source, judged.path.target.node].append(PathSign.LARGE_LOST)
    return found


def node_names(facts: NodesFacts) -> tuple[str, ...]:
    """Those that are here, then those that are not but have a name."""
    here = (node.name for node in facts.nodes)
    return tuple(dict.fromkeys((*here, *(one.name for one in facts.absent if one.name))))


def _state(connects: list[PathSign], more: list[PathSign]) -> PairState:
    if not connects:
        return PairState(PathSign.UNTRIED, partly=False)
    worst = min([*connects, *more], key=RANK.__getitem__)
    partly = worst in connects and any(sign is PathSign.OK for sign in connects)
    return PairState(worst, partly=partly and worst is not PathSign.OK)
